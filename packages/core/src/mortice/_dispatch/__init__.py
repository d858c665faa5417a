"""The dispatcher: key sets, schemas, operators, and how a call finds its kernel."""
