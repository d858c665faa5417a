"""Replay plans from one process to the next."""
