"""A torch-free tensor runtime made of sockets: PyTorch's API, operator schemas and checkpoints, every capability a plug-in."""

from mortice._version import __version__ as __version__
