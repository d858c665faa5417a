"""Capture: a compiled call's operators recorded, segments of them compiled; tensors without data."""
