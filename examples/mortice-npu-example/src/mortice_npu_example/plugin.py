"""The runtime of the device ``npu``: it alone talks to the accelerator, through two pipes."""

from __future__ import annotations

import pickle
import sys
import threading
from subprocess import PIPE, Popen

import mortice
from mortice.backend import DeviceArray, DeviceRuntime, Features, hookimpl
from mortice_npu_example import chip


class Npu(DeviceRuntime):
    """Two devices. Buffers are handles of the accelerator's memory, which cannot be seen here."""

    class features(Features):
        """What core may rely on."""

        strided, numbers, fork = True, True, "restart"
        dtypes = (mortice.float32, mortice.float64, mortice.int64, mortice.bool)

    def __init__(self) -> None:
        self.chip = Popen([sys.executable, "-m", chip.__name__], stdin=PIPE, stdout=PIPE)
        self.lock, self.dropped = threading.Lock(), []

    def ask(self, name: str, *arguments: object) -> object:
        with self.lock:  # free may be called by a garbage collection in here, so it only notes
            dropped, self.dropped = self.dropped, []
            pickle.dump((dropped, name, arguments), self.chip.stdin)
            self.chip.stdin.flush()
            return pickle.load(self.chip.stdout)

    def count(self) -> int:
        return 2

    def allocate(self, nbytes: int, index: int) -> int:
        return self.ask("allocate", nbytes)

    def free(self, buffer: int) -> None:
        self.dropped.append(buffer)

    def copy_in(self, buffer: int, offset: int, data: memoryview) -> None:
        self.ask("copy_in", buffer, offset, data.tobytes())

    def copy_out(self, buffer: int, offset: int, data: memoryview) -> None:
        data.cast("B")[:] = self.ask("copy_out", buffer, offset, data.nbytes)

    def copy_device(self, target: int, to: int, source: int, of: int, nbytes: int) -> None:
        self.ask("copy", target, to, source, of, nbytes)

    def kernel(self, op: str, dtypes: tuple[object, ...]) -> object:
        return launcher(self, op) if op in chip.KERNELS else None


def launcher(npu: Npu, op: str) -> object:
    return lambda *arguments: npu.ask("launch", op, [described(value) for value in arguments])


def described(value: object) -> object:
    if not isinstance(value, DeviceArray):
        return str(value) if isinstance(value, mortice.dtype) else value
    item = value.dtype.itemsize
    strides = tuple(step * item for step in value.strides)
    where = {"buffer": value.buffer.value, "offset": value.offset * item, "strides": strides}
    return {**where, "shape": value.shape, "dtype": value.dtype.numpy.str}


@hookimpl
def mortice_device(name: str) -> type[Npu]:
    return Npu
