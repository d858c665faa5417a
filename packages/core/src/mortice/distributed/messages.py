"""Messages as users send them: each follows a header that says how much of what it is.

So a receiver with another size or dtype gets an error, whatever the library does of it: Gloo would
end the process, MPI fill a part of the memory.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from .communicator import Call
from .comparison import RanksDisagree
from .fold import Array

if TYPE_CHECKING:
    from .host import HostCommunicator

_HEADER = struct.Struct("<qqq16s")  # elements, bytes, the send's number, the dtype's name


def _tags(call: Call) -> tuple[int, int]:
    """Tags of header and data: two receives at once, one from anyone, must not mix them up."""
    return 2 * call.tag, 2 * call.tag + 1


def send(comm: HostCommunicator, call: Call, data: Array) -> None:
    """Send a header and the data to ``call.root``."""
    head, body = _tags(call)
    header = _HEADER.pack(data.size, data.nbytes, call.sequence, data.dtype.name.encode())
    comm.send(np.frombuffer(header, np.uint8), call.root, head)
    if data.size:
        comm.send(data.view(np.uint8), call.root, body)


def recv(comm: HostCommunicator, call: Call, data: Array) -> int:
    """Receive into ``data`` what has its size and dtype; returns who sent.

    Raises RanksDisagree if something else comes, which is taken in and dropped: its sender has done
    nothing that it could not end.
    """
    head, body = _tags(call)
    header = np.empty(_HEADER.size, np.uint8)
    source = comm.recv(header, call.root, head)
    count, nbytes, sequence, name = _HEADER.unpack(header.tobytes())
    found, expected = name.rstrip(b"\0").decode(), data.dtype.name
    if (count, found) == (data.size, expected):
        if count:
            comm.recv(data.view(np.uint8), source, body)
        return source
    if count:
        comm.recv(np.empty(nbytes, np.uint8), source, body)
    ranks = comm.setup.ranks
    raise RanksDisagree(
        f"rank {ranks[source]} sends {count} elements of {found} (its send #{sequence}), and rank "
        f"{ranks[comm.rank]} receives {data.size} of {expected}; they must agree"
    )
