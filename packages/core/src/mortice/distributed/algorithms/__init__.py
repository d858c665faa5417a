"""What is built on groups: joins of uneven inputs, communication hooks."""
