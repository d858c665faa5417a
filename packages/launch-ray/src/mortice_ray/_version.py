"""The version; every distribution of the repository carries the same."""

__version__ = "0.1.0"
