"""mortice's kernels for the device cpu."""

from mortice_cpu._version import __version__ as __version__
