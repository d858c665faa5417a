"""Exported programs: a whole function as one graph, with a signature, that can be saved."""
