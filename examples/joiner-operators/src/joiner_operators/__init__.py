"""Operators for mortice: soft clipping, and distances to a codebook."""

from joiner_operators._generated.functions import FUNCTIONS

softclip = FUNCTIONS["softclip"]
nearest_code = FUNCTIONS["nearest_code"]

__all__ = ["nearest_code", "softclip"]
