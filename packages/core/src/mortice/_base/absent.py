"""PyTorch's names that are not here, and what to use in their place.

The same table stands in ``docs/pytorch.md``; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable

from .errors import UnknownName, nearest

_QUANTIZED = "quantised tensors are loaded, converted and saved; they do not compute"
_SPARSE = "sparse tensors are loaded, converted and saved; they do not compute"
_SOLVERS = "use mortice.linalg.solve, qr, cholesky or svd"
_FRAMES = "cut frames with x.unfold(0, n, hop) and use mortice.fft"

#: PyTorch's name without "torch." -> what to do here.
ABSENT: dict[str, str] = {
    "_decomp": "use mortice.decompositions",
    "_dynamo": "use mortice.compile and mortice.compiler",
    "_inductor": "its options go to mortice.compile(options=...)",
    "_prims": "use mortice.ops.prims",
    "_subclasses": "use mortice.fake",
    "ao": _QUANTIZED,
    "backends": "mortice.list_backends() shows what is installed; settings are in mortice.config",
    "cond": "write Python's if",
    "cuda.amp": "mortice.amp serves all devices",
    "distributed.checkpoint": "let rank 0 call mortice.save",
    "distributed.fsdp": "use mortice.nn.parallel.DistributedDataParallel",
    "distributed.pipelining": "use mortice.distributed.send and recv",
    "distributed.rpc": "use mortice.distributed.send_object_list and recv_object_list",
    "distributed.tensor": "use the collectives of mortice.distributed",
    "distributions": "sample with mortice.normal, bernoulli, multinomial and poisson",
    "func": "use mortice.vmap and mortice.autograd.grad",
    "functional": "its functions are in mortice itself",
    "hub": "fetch the file, then use mortice.load",
    "istft": "use mortice.fft.irfft and add the frames up",
    "jit": "use mortice.compile; mortice.export saves programs",
    "linalg.ldl_factor": _SOLVERS,
    "linalg.lstsq": "use mortice.linalg.pinv or qr",
    "linalg.lu": _SOLVERS,
    "linalg.lu_factor": _SOLVERS,
    "lu": _SOLVERS,
    "masked": "use mortice.where with a mask",
    "nested": "pad, and carry a mask",
    "onnx": "mortice.export saves programs in mortice's own format",
    "profiler": "use Python's profilers",
    "quantization": _QUANTIZED,
    "set_default_tensor_type": "use mortice.set_default_dtype and set_default_device",
    "signal": "use mortice.hann_window and its like",
    "sparse": _SPARSE,
    "sparse_coo_tensor": _SPARSE,
    "sparse_csr_tensor": _SPARSE,
    "stft": _FRAMES,
    "utils.benchmark": "use Python's timeit",
    "utils.checkpoint": "activations are kept; use smaller batches",
    "utils.cpp_extension": "write a plug-in, see docs/plugins.md",
    "utils.tensorboard": "use a logger of your own",
    "while_loop": "write Python's while",
}


def hint(name: str) -> str:
    """`` PyTorch's ... is not here: ...`` for a name in the table, else an empty string."""
    instead = ABSENT.get(name)
    return "" if instead is None else f" PyTorch's torch.{name} is not here: {instead}."


def no_attribute(module: str, name: str, known: Iterable[str]) -> UnknownName:
    """The error of a module's ``__getattr__``, with what is nearest or stands in its place."""
    told = ""
    if not name.startswith("__"):
        told = hint(f"{module}.{name}".partition(".")[2]) or nearest(
            name, [one for one in known if not one.startswith("_")]
        )
    return UnknownName(f"module {module!r} has no attribute {name!r}.{told}", name=name)
