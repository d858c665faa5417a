"""Operators from outside core: libraries, custom operators, fakes and their gradients."""
