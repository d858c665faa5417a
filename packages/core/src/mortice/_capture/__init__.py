"""Capture: tensors without data, and what runs of Python are recorded as."""
