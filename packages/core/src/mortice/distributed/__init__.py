"""Many processes that work together: groups, collectives, messages, stores.

::

    import mortice, mortice.distributed as dist

    dist.init_process_group("gloo")
    t = mortice.ones(3) * dist.get_rank()
    dist.all_reduce(t)

Backends are plug-ins: ``list_backends`` says which there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mortice.errors import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    OperationTimeout,
    StoreTimeout,
)

from .coalescing import _coalescing_manager
from .collectives import (
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from .communicator import Call, Communicator, Setup
from .control import (
    default_pg_timeout,
    destroy_process_group,
    get_backend,
    get_backend_config,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_available,
    is_backend_available,
    is_initialized,
    is_torchelastic_launched,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
)
from .device_mesh import DeviceMesh, init_device_mesh
from .group import GroupMember, ProcessGroup
from .host import HostCommunicator
from .objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from .point_to_point import P2POp, batch_isend_irecv, irecv, isend, recv, send
from .reduce_op import ReduceOp
from .registry import Backend
from .rendezvous import register_rendezvous_handler
from .store import FileStore, HashStore, PrefixStore, Store, TCPStore
from .streamed import StreamCommunicator
from .work import Future, Work


def list_backends() -> list[str]:
    """Names of the distributed backends that can be used as far as metadata tells, sorted.

    Loads none; ``mortice.list_backends("distributed")`` gives states and reasons, too.
    """
    return Backend.backend_list()


def is_gloo_available() -> bool:
    return is_backend_available("gloo")


def is_mpi_available() -> bool:
    return is_backend_available("mpi")


def is_nccl_available() -> bool:
    return is_backend_available("nccl")


def is_ucc_available() -> bool:
    return is_backend_available("ucc")


def is_xccl_available() -> bool:
    return is_backend_available("xccl")


__all__ = [
    "Backend",
    "Call",
    "Communicator",
    "DeviceMesh",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "FileStore",
    "Future",
    "GroupMember",
    "HashStore",
    "HostCommunicator",
    "OperationTimeout",
    "P2POp",
    "PrefixStore",
    "ProcessGroup",
    "ReduceOp",
    "Setup",
    "Store",
    "StoreTimeout",
    "StreamCommunicator",
    "TCPStore",
    "Work",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "default_pg_timeout",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_backend",
    "get_backend_config",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "init_device_mesh",
    "init_process_group",
    "irecv",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
    "isend",
    "list_backends",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "register_rendezvous_handler",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
]


if not TYPE_CHECKING:  # a checker would take every name to be there

    def __getattr__(name: str) -> object:
        """Only what is not there comes here: say what is nearest, or stands in its place."""
        from mortice._base.absent import no_attribute

        raise no_attribute("mortice.distributed", name, __all__)
