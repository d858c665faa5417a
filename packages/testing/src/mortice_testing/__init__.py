"""mortice's conformance kit for plug-ins, assert_close, gradcheck and opcheck."""

from mortice_testing._version import __version__ as __version__
