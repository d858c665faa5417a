"""mortice's neural network modules, optimisers, data loading and automatic mixed precision."""

from mortice_nn._version import __version__ as __version__
