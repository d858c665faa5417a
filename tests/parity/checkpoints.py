"""Checkpoints between torch 2.13 and mortice, both ways.

    python tests/parity/checkpoints.py

What torch writes is loaded by mortice (whole, mapped, legacy), compared, saved again and compared
with torch's file record by record; torch loads that with weights_only=True. Exit status 1 if
anything differs.
"""

from __future__ import annotations

import io
import sys
import tempfile
import warnings
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import checkout

checkout.use()

import torch

import mortice
from mortice.serialization.opaque import NestedTensor, QuantizedTensor, SparseTensor
from mortice.serialization.tensors import TypedStorage

DTYPES = [
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
    "uint16", "uint32", "uint64", "complex64", "complex128", "complex32", "float8_e4m3fn",
    "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
]  # fmt: skip


def model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.LSTM(4, 5, bidirectional=True),
        torch.nn.TransformerEncoderLayer(8, 2), torch.nn.Embedding(7, 3),
    )  # fmt: skip


def optimizer() -> Any:
    net = torch.nn.Linear(3, 2)
    adam = torch.optim.AdamW(net.parameters(), lr=0.1)
    net(torch.ones(1, 3)).sum().backward()
    adam.step()
    return {"model": net.state_dict(), "optimizer": adam.state_dict(), "epoch": 3}


def every_dtype() -> Any:
    raw = torch.arange(32, dtype=torch.uint8) % 2
    return {name: raw.clone().view(getattr(torch, name)) for name in DTYPES if name != "bool"} | {
        "bool": raw.bool()
    }


def views() -> Any:
    base = torch.arange(60.0).reshape(3, 4, 5)
    return {
        "base": base, "row": base[1], "t": base.transpose(0, 2), "step": base[:, ::2, 1:],
        "wide": torch.ones(1, 3).expand(4, 3), "empty": torch.empty(0, 3), "scalar": base[1, 2, 3],
        "last": torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last), "same": base,
    }  # fmt: skip


def sparse() -> Any:
    dense = torch.tensor([[0.0, 1, 0, 2], [3, 0, 0, 0]])
    return {
        "coo": dense.to_sparse(), "hybrid": torch.ones(3, 2).to_sparse(1),
        "csr": dense.to_sparse_csr(), "csc": dense.to_sparse_csc(),
        "bsr": dense.to_sparse_bsr((2, 2)), "bsc": dense.to_sparse_bsc((1, 2)),
    }  # fmt: skip


def quantised() -> Any:
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    scales, zeros = torch.tensor([0.1, 0.2, 0.3]).double(), torch.tensor([0, 1, 2])
    return {
        "tensor": torch.quantize_per_tensor(x, 0.1, 3, torch.quint8),
        "int32": torch.quantize_per_tensor(x, 0.01, 0, torch.qint32),
        "channel": torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8),
    }


def attributes() -> Any:
    t, p = torch.ones(2), torch.nn.Parameter(torch.ones(3), requires_grad=False)
    t.note = {"k": [1]}
    p.tag = "x"
    return [t, p, torch.nn.Parameter(torch.zeros(2, 2)), torch.ones(2, requires_grad=True)]


def python() -> Any:
    return {
        "n": None, "b": True, "i": [0, -1, 2**40, -(2**70)], "f": 0.1, "s": "é世", "by": b"\0\xff",
        "ba": bytearray(b"ab"), "set": {1, 2}, "c": 1j, "od": OrderedDict(a=1), "cn": Counter("aab"),
        "size": torch.Size([2]), "dtype": torch.float16, "dev": torch.device("cuda", 1),
        "layout": torch.sparse_coo, (1, 2): "key", "long": list(range(2500)),
    }  # fmt: skip


CASES: dict[str, Callable[[], Any]] = {
    "state_dict": lambda: model().state_dict(),
    "optimizer": optimizer,
    "every dtype": every_dtype,
    "views": views,
    "sparse": sparse,
    "quantised": quantised,
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.zeros(1, 3)]),
    "attributes": attributes,
    "python": python,
    "meta": lambda: torch.empty(2, 3, device="meta"),
    "conjugate": lambda: [torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 2j]).conj().imag],
    "storages": lambda: [torch.ones(3).untyped_storage(), torch.ones(2).storage()],
}

# Where the two files need not be the same: views that mortice resolves, one-letter strings that
# CPython shares, names that the layouts' own classes do not carry.
NOT_BYTES = ("conjugate", "python", "attributes")


def compare(theirs: Any, ours: Any, path: str = "") -> list[str]:
    """The places where a torch object and its counterpart differ."""
    if isinstance(theirs, torch.Tensor):
        return _tensors(theirs, ours, path)
    if isinstance(theirs, dict):
        if list(map(str, theirs)) != list(map(str, ours)) or type(theirs) is not type(ours):
            return [f"{path}: keys {list(theirs)[:5]} and {list(ours)[:5]}"]
        pairs = zip(theirs.values(), ours.values(), strict=True)
        found = [compare(a, b, f"{path}.{key}") for key, (a, b) in zip(theirs, pairs, strict=True)]
        return [place for places in found for place in places]
    if isinstance(theirs, (list, tuple)) and not isinstance(theirs, torch.Size):
        if len(theirs) != len(ours) or type(theirs) is not type(ours):
            return [f"{path}: {type(theirs)} and {type(ours)}"]
        found = [compare(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(zip(theirs, ours))]
        return [place for places in found for place in places]
    if isinstance(theirs, (torch.storage.TypedStorage, torch.UntypedStorage)):
        raw = ours.untyped() if isinstance(ours, TypedStorage) else ours
        same = bytes(theirs.untyped().tolist()) == raw.bytes().tobytes()
        return [] if same else [f"{path}: storages differ"]
    if str(theirs).replace("torch", "mortice") == str(ours).replace("torch", "mortice"):
        return []
    return [f"{path}: {theirs!r} and {ours!r}"]


def _tensors(theirs: Any, ours: Any, path: str) -> list[str]:
    if theirs.is_nested:
        assert isinstance(ours, NestedTensor)
        return compare(list(theirs.unbind()), list(ours.unbind()), path)
    if theirs.layout != torch.strided:
        assert isinstance(ours, SparseTensor)
        return compare(theirs.to_dense(), ours.to_dense(), path)
    if theirs.is_quantized:
        assert isinstance(ours, QuantizedTensor)
        close = (ours.dequantize().numpy() - theirs.dequantize().numpy()).max() < 1e-6
        found = [] if close else [f"{path}: dequantized values differ"]
        return found + compare(theirs.int_repr(), ours.int_repr(), path)
    facts = [
        (str(theirs.dtype)[6:], ours.dtype.name),
        (tuple(theirs.shape), tuple(ours.shape)),
        (theirs.stride(), ours.stride()),
        (theirs.storage_offset(), ours.storage_offset()),
        (theirs.requires_grad, ours.requires_grad),
        (isinstance(theirs, torch.nn.Parameter), type(ours).__name__ == "Parameter"),
    ]
    if theirs.is_conj() or theirs.is_neg():
        theirs, facts = theirs.resolve_conj().resolve_neg(), facts[:2]
    if theirs.device.type != "meta":
        raw = torch.empty(theirs.numel(), dtype=theirs.dtype)
        raw.copy_(theirs.detach().reshape(-1))
        facts.append((bytes(raw.view(torch.uint8).tolist()) if raw.numel() else b"",
                      ours.detach().contiguous()._a.tobytes()))  # fmt: skip
    found = [f"{path}: {a!r} and {b!r}" for a, b in facts if a != b]
    return found + compare(dict(vars(theirs)), dict(vars(ours)), f"{path}.__dict__")


def records(path: Path) -> list[tuple[str, int, bytes]]:
    with zipfile.ZipFile(path) as archive:
        return [(i.filename, i.header_offset, archive.read(i)) for i in archive.infolist()[:-1]]


def check(name: str, folder: Path) -> list[str]:
    """What differs for one case."""
    theirs = CASES[name]()
    first, second = folder / "x.pt", folder / "again" / "x.pt"
    second.parent.mkdir(exist_ok=True)
    torch.save(theirs, first)
    ours = mortice.load(first)
    found = [f"load {place}" for place in compare(theirs, ours)]
    found += [f"mmap {place}" for place in compare(theirs, mortice.load(first, mmap=True))]
    if name not in ("sparse", "nested"):
        old = io.BytesIO()
        torch.save(theirs, old, _use_new_zipfile_serialization=False)
        old.seek(0)
        found += [f"legacy {place}" for place in compare(theirs, mortice.load(old))]
    mortice.save(ours, second)
    if name not in NOT_BYTES and records(first) != records(second):
        found.append("save: the records differ from torch's")
    back = torch.load(second, weights_only=True)
    found += [f"back {place}" for place in compare(back, mortice.load(second))]
    found += [f"mmap back {place}" for place in
              compare(torch.load(second, mmap=True, weights_only=True), ours)]  # fmt: skip
    return found


def main() -> int:
    warnings.simplefilter("ignore")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in CASES:
            found = check(name, Path(folder))
            failed += bool(found)
            print(f"{name:<14} {'ok' if not found else 'DIFFERS'}")
            for place in found[:10]:
                print(f"    {place}")
    print(f"{len(CASES) - failed} of {len(CASES)} cases agree")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
