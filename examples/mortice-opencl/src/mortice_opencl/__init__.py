"""The device ``opencl`` for mortice."""

__version__ = "0.1.0"
