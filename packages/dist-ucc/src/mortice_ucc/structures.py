"""UCC's structures and numbers, as its API has them since 1.2.

Later versions add members at the ends alone, which a mask says are not given.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, c_double, c_int, c_int64, c_size_t, c_uint16, c_uint32, c_uint64
from ctypes import c_void_p as pointer

# ucc_status_t: what is below 0 is an error.
OK, IN_PROGRESS, NO_MESSAGE = 0, 1, -6

THREAD_MULTIPLE = 2
# What a structure's mask says is given.
LIB_THREAD_MODE = 1 << 0
CONTEXT_OOB = 1 << 2
TEAM_EP, TEAM_EP_RANGE, TEAM_OOB = 1 << 2, 1 << 4, 1 << 7
ARGS_FLAGS, ARGS_TAG, ARGS_ACTIVE_SET = 1 << 0, 1 << 1, 1 << 4
# Flags of an operation.
IN_PLACE, COUNT_64, DISPLACEMENT_64 = 1 << 0, 1 << 2, 1 << 3

# ucc_coll_type_t.
ALLGATHER, ALLREDUCE, ALLTOALLV = 1 << 0, 1 << 2, 1 << 4
BCAST, GATHER, REDUCE, REDUCE_SCATTER, SCATTERV = 1 << 6, 1 << 9, 1 << 11, 1 << 12, 1 << 15

# ucc_datatype_t: a number above three bits of class, which is 0.
BYTE = 5 << 3
DTYPES = {
    "int8": 0 << 3, "int16": 1 << 3, "int32": 2 << 3, "int64": 3 << 3,
    "uint8": BYTE, "uint16": 6 << 3, "uint32": 7 << 3, "uint64": 8 << 3,
    "float32": 11 << 3, "float64": 12 << 3,
}  # fmt: skip
# ucc_reduction_op_t.
OPS = {"SUM": 0, "PRODUCT": 1, "MAX": 2, "MIN": 3, "BAND": 7, "BOR": 8, "BXOR": 9}

# The three functions of an exchange that UCC asks for, outside its own transports.
AllGather = CFUNCTYPE(c_int, pointer, pointer, c_size_t, pointer, ctypes.POINTER(pointer))
OnRequest = CFUNCTYPE(c_int, pointer)


class LibParams(ctypes.Structure):
    """ucc_lib_params_t."""

    _fields_ = [
        ("mask", c_uint64),
        ("thread_mode", c_int),
        ("coll_types", c_uint64),
        ("reduction_types", c_uint64),
        ("sync_type", c_int),
    ]


class Oob(ctypes.Structure):
    """ucc_oob_coll_t."""

    _fields_ = [
        ("allgather", AllGather),
        ("req_test", OnRequest),
        ("req_free", OnRequest),
        ("coll_info", pointer),
        ("n_oob_eps", c_uint32),
        ("oob_ep", c_uint32),
    ]


class MemoryMap(ctypes.Structure):
    """ucc_mem_map_params_t."""

    _fields_ = [("segments", pointer), ("n_segments", c_uint64)]


class ContextParams(ctypes.Structure):
    """ucc_context_params_t."""

    _fields_ = [
        ("mask", c_uint64),
        ("type", c_int),
        ("sync_type", c_int),
        ("oob", Oob),
        ("ctx_id", c_uint64),
        ("mem_params", MemoryMap),
    ]


class PeerConnections(ctypes.Structure):
    """ucc_team_p2p_conn_t."""

    _fields_ = [(name, pointer) for name in ("look", "let", "ctx", "test", "free")]


class EndpointMap(ctypes.Structure):
    """ucc_ep_map_t; its union is of at most two words."""

    _fields_ = [
        ("type", c_int),
        ("ep_num", c_uint64),
        ("first", c_uint64),
        ("second", c_uint64),
    ]


class TeamParams(ctypes.Structure):
    """ucc_team_params_t."""

    _fields_ = [
        ("mask", c_uint64),
        ("flags", c_uint64),
        ("ordering", c_int),
        ("outstanding_colls", c_uint64),
        ("ep", c_uint64),
        ("ep_list", pointer),
        ("ep_range", c_int),
        ("team_size", c_uint64),
        ("sync_type", c_int),
        ("oob", Oob),
        ("p2p_conn", PeerConnections),
        ("mem_params", MemoryMap),
        ("ep_map", EndpointMap),
        ("id", c_uint64),
    ]


class Even(ctypes.Structure):
    """ucc_coll_buffer_info_t: one count."""

    _fields_ = [
        ("buffer", pointer),
        ("count", c_uint64),
        ("datatype", c_uint64),
        ("mem_type", c_int),
    ]


class Uneven(ctypes.Structure):
    """ucc_coll_buffer_info_v_t: a count and a place for each rank."""

    _fields_ = [
        ("buffer", pointer),
        ("counts", pointer),
        ("displacements", pointer),
        ("datatype", c_uint64),
        ("mem_type", c_int),
    ]


class Buffer(ctypes.Union):
    """Either of the two."""

    _fields_ = [("even", Even), ("uneven", Uneven)]


class Callback(ctypes.Structure):
    """ucc_coll_callback_t."""

    _fields_ = [("function", pointer), ("data", pointer)]


class ActiveSet(ctypes.Structure):
    """The ranks of an operation that is not all ranks'."""

    _fields_ = [("start", c_uint64), ("stride", c_int64), ("size", c_uint64)]


class Arguments(ctypes.Structure):
    """ucc_coll_args_t; the room at the end is for what later versions add."""

    _fields_ = [
        ("mask", c_uint64),
        ("coll_type", c_int),
        ("src", Buffer),
        ("dst", Buffer),
        ("op", c_int),
        ("flags", c_uint64),
        ("root", c_uint64),
        ("error_type", c_int),
        ("tag", c_uint16),
        ("global_work_buffer", pointer),
        ("cb", Callback),
        ("timeout", c_double),
        ("active_set", ActiveSet),
        ("later", c_uint64 * 16),
    ]
