"""``mortice.save`` and ``mortice.load``: PyTorch's checkpoints, read and written without PyTorch.

Loading runs no code from a file and is bounded by what the file warrants; a file that is damaged,
unsafe or not understood ends in `mortice.errors.CheckpointError`, which says where.
"""

from mortice.serialization.bounds import Limits, limits
from mortice.serialization.convert import convert
from mortice.serialization.inspection import Contents, inspect
from mortice.serialization.load import get_unsafe_globals_in_checkpoint, load
from mortice.serialization.opaque import NestedTensor, QuantizedTensor, SparseTensor
from mortice.serialization.options import (
    LoadEndianness,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
)
from mortice.serialization.safe import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)
from mortice.serialization.save import save
from mortice.serialization.tags import default_restore_location, location_tag, register_package
from mortice.serialization.tensors import TypedStorage

__all__ = [
    "Contents",
    "Limits",
    "LoadEndianness",
    "NestedTensor",
    "QuantizedTensor",
    "SparseTensor",
    "TypedStorage",
    "add_safe_globals",
    "clear_safe_globals",
    "convert",
    "default_restore_location",
    "get_crc32_options",
    "get_default_load_endianness",
    "get_default_mmap_options",
    "get_safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "inspect",
    "limits",
    "load",
    "location_tag",
    "register_package",
    "safe_globals",
    "save",
    "set_crc32_options",
    "set_default_load_endianness",
    "set_default_mmap_options",
    "skip_data",
]
