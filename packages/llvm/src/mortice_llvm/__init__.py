"""mortice's code generation library: loop IR, scalar operations, vector math, targets and object cache, on llvmlite."""

from mortice_llvm._version import __version__ as __version__
