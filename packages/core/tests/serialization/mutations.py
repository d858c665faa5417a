"""Damaged, altered and invented checkpoints for fuzzing, from a random source.

Three ways, of equal weight: the bytes of a whole file; the pickle inside a file whose container is
then made right again, so that the change is not caught by a checksum; a pickle put together from
opcodes that mostly fit.
"""

from __future__ import annotations

import io
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

from builder import (
    HOOKS,
    Entry,
    Zip,
    call,
    dims,
    entries,
    group,
    pickle,
    storage,
    tensor,
    text,
    whole,
)  # fmt: skip

FIXTURES = Path(__file__).parent / "fixtures"
# These are large, and their size is all that they are about.
_TOO_LARGE = ("h48_deep_nest.pt", "h67_zipbomb.pt")

INTERESTING = (0, 1, 2, 7, 8, 63, 64, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1,
               2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)  # fmt: skip


def seeds() -> dict[str, bytes]:
    """The fixtures that mutations start from."""
    return {
        path.name: path.read_bytes()
        for path in sorted(FIXTURES.glob("*.pt"))
        if path.name not in _TOO_LARGE
    }


def change_bytes(data: bytes, rng: random.Random, most: int = 6) -> bytes:
    """Flip, overwrite, insert, delete, repeat or cut, a few times over."""
    out = bytearray(data)
    for _ in range(rng.randint(1, most)):
        if not out:
            break
        at = rng.randrange(len(out))
        kind = rng.randrange(8)
        if kind == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[at] = rng.randrange(256)
        elif kind == 2:
            width = rng.choice((1, 2, 4, 8))
            value = rng.choice(INTERESTING) % (1 << 8 * width)
            out[at : at + width] = value.to_bytes(width, rng.choice(("little", "big")))
        elif kind == 3:
            out[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 8)))
        elif kind == 4:
            del out[at : at + rng.randint(1, 16)]
        elif kind == 5:
            out[at:at] = out[at : at + rng.randint(1, 64)]
        elif kind == 6:
            end = rng.randrange(len(out))
            out[at : at + 8] = out[end : end + 8]
        else:
            del out[at:]
    return bytes(out)


def change_pickle(data: bytes, rng: random.Random) -> bytes:
    """Change the pickle of a zip file, or another record, and write the container anew."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except (zipfile.BadZipFile, NotImplementedError, EOFError):
        return change_bytes(data, rng)
    if not parts:
        return change_bytes(data, rng)
    index = 0 if rng.random() < 0.8 else rng.randrange(len(parts))
    made = []
    for number, (name, content) in enumerate(parts):
        altered = change_opcodes(content, rng) if number == index == 0 else content
        if number == index != 0:
            altered = change_bytes(content, rng)
        made.append(Entry(name, altered, 8 if rng.random() < 0.05 else 0))
    if rng.random() < 0.05:
        rng.shuffle(made)
    return Zip(*made).build()


def change_opcodes(data: bytes, rng: random.Random) -> bytes:
    """Change a pickle by whole opcodes where it has them, else by bytes."""
    import pickletools

    if rng.random() < 0.4:
        return change_bytes(data, rng)
    try:
        starts = [position for _, _, position in pickletools.genops(data)]
    except (ValueError, EOFError, UnicodeDecodeError):
        return change_bytes(data, rng)
    pieces = [data[a:b] for a, b in zip(starts, [*starts[1:], len(data)], strict=True)]
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(pieces)) if pieces else 0
        kind = rng.randrange(5)
        if kind == 0 and pieces:
            del pieces[at]
        elif kind == 1:
            pieces.insert(at, rng.choice(pieces) if pieces and rng.random() < 0.5 else atom(rng))
        elif kind == 2 and pieces:
            pieces[at] = atom(rng)
        elif kind == 3 and pieces:
            other = rng.randrange(len(pieces))
            pieces[at], pieces[other] = pieces[other], pieces[at]
        elif pieces:
            other = rng.randint(at, min(len(pieces), at + 20))
            pieces[at:at] = pieces[at:other]
    return b"".join(pieces)


def atom(rng: random.Random) -> bytes:
    """One opcode or short value."""
    return rng.choice(_ATOMS)(rng)


def _number(rng: random.Random) -> bytes:
    value = rng.choice(INTERESTING)
    return whole(-value if rng.random() < 0.2 else value)


def _name(rng: random.Random) -> bytes:
    return b"c" + rng.choice(_NAMES).replace(b" ", b"\n") + b"\n"


_NAMES = [
    b"torch._utils _rebuild_tensor", b"torch._utils _rebuild_tensor_v2",
    b"torch._utils _rebuild_tensor_v3", b"torch._utils _rebuild_parameter",
    b"torch._utils _rebuild_parameter_with_state", b"torch._utils _rebuild_qtensor",
    b"torch._utils _rebuild_sparse_tensor", b"torch._utils _rebuild_nested_tensor",
    b"torch._utils _rebuild_meta_tensor_no_storage", b"torch._tensor _rebuild_from_type_v2",
    b"torch._utils _rebuild_device_tensor_from_cpu_tensor", b"torch.serialization _get_layout",
    b"torch Size", b"torch device", b"torch Tensor", b"torch float16", b"torch FloatStorage",
    b"torch LongStorage", b"torch QInt8Storage", b"torch.storage UntypedStorage",
    b"torch per_channel_affine", b"torch.nn.parameter Parameter", b"collections OrderedDict",
    b"collections Counter", b"_codecs encode", b"__builtin__ set", b"__builtin__ bytearray",
    b"__builtin__ complex", b"__builtin__ frozenset", b"__builtin__ bytes", b"os system",
    b"builtins eval", b"numpy.core.multiarray _reconstruct",
]  # fmt: skip
_TEXTS = ("storage", "cpu", "cuda:0", "meta", "0", "1", "latin1", "torch.sparse_coo", "conj", "",
          "a", "\ud800", "x" * 300)  # fmt: skip
_PLAIN = (b"N", b"\x88", b"\x89", b")", b"]", b"}", b"\x8f", b"(", b"t", b"\x85", b"\x86", b"\x87",
          b"a", b"e", b"s", b"u", b"R", b"\x81", b"b", b"Q", b"0", b".", b"\x80\x02")  # fmt: skip

_ATOMS: list[Callable[[random.Random], bytes]] = [
    lambda rng: rng.choice(_PLAIN),
    lambda rng: rng.choice(_PLAIN),
    _number,
    _name,
    lambda rng: text(rng.choice(_TEXTS)),
    lambda rng: bytes((rng.choice(b"hq"), rng.randrange(24))),
    lambda rng: b"G" + struct.pack(">d", rng.choice((0.0, -1.5, 1e308, float("nan")))),
    lambda rng: bytes((0x55, 3)) + b"abc",
    lambda rng: bytes((rng.randrange(256),)),
]


def value(rng: random.Random, depth: int = 0) -> bytes:
    """Opcodes that push one object, mostly a well-formed one."""
    if depth > 4 or rng.random() < 0.25:
        return atom(rng)
    kind = rng.randrange(9)
    inner = [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 0:
        return b"](" + b"".join(inner) + b"e"
    if kind == 1:
        return b"}(" + b"".join(text(str(i)) + item for i, item in enumerate(inner)) + b"u"
    if kind == 2:
        return group(*inner)
    if kind == 3:
        return call(rng.choice(_NAMES).decode(), *inner)
    if kind == 4:
        return HOOKS + b"(" + b"".join(text(str(i)) + item for i, item in enumerate(inner)) + b"u"
    made = some_tensor(rng)
    if kind == 5:
        made = call("torch._utils _rebuild_parameter", made, b"\x88", HOOKS)
    elif kind == 6:
        made = _of_parts(rng, depth)
    elif kind == 7:
        state = b"}(" + text(rng.choice(("note", "parts", "shape", "_leaf", "data"))) + b"Nu"
        rebuild = b"c" + rng.choice(_NAMES[:8]).replace(b" ", b"\n") + b"\n"
        cls = rng.choice((b"ctorch\nTensor\n", b"ctorch.nn.parameter\nParameter\n"))
        made = call("torch._tensor _rebuild_from_type_v2", rebuild, cls, group(*inner), state)
    return made


def some_tensor(rng: random.Random, cls: str | None = None) -> bytes:
    """A strided tensor, mostly within its storage."""
    small = rng.random() < 0.7
    sizes = (0, 1, 2, 3, 6) if small else (0, 1, 2, 6, 1 << 20, 1 << 40, 1 << 62, 1 << 63)
    strides = (0, 1, 2, 3) if small else (0, 1, 6, 1 << 40, 1 << 61)
    size = [rng.choice(sizes) for _ in range(rng.randrange(4))]
    stride = [rng.choice(strides) for _ in size]
    if rng.random() < 0.05:
        stride.append(1)
    cls = cls or (rng.choice(_CLASSES[1:]) if rng.random() < 0.4 else _CLASSES[0])
    more: list[bytes] = []
    if rng.random() < 0.1:
        flag = text(rng.choice(("conj", "neg", "odd"))) + b"\x88"
        more = [b"}(" + flag + b"u"]
    return tensor(
        dims(*size), dims(*stride), whole(rng.choice((0, 0, 0, 1, 2, 6, 1 << 61))),
        some_storage(rng, cls), rng.choice((b"\x89", b"\x89", b"\x89", b"\x88", b"N")),
        HOOKS, *more,
    )  # fmt: skip


def some_storage(rng: random.Random, name: str) -> bytes:
    """The storage that a class has for itself; seldom another's, or of a wrong size."""
    key = _CLASSES.index(name) if rng.random() < 0.95 else rng.randrange(len(_CLASSES))
    numel = _NUMEL[name] if rng.random() < 0.95 else 5
    return storage(str(key), numel, f"ctorch\n{name}Storage\n".encode())


# Elements of each class in the 24 bytes of a storage; a class's place is its storage's key.
_NUMEL = {
    "Float": 6, "Long": 3, "Double": 3, "Bool": 24, "ComplexFloat": 3, "QInt8": 24,
    "BFloat16": 12, "Int": 6,
}  # fmt: skip
_CLASSES = list(_NUMEL)


def _of_parts(rng: random.Random, depth: int) -> bytes:
    """A sparse, nested or quantised tensor."""
    parts = [
        some_tensor(rng, "Long" if rng.random() < 0.8 else None)
        if rng.random() < 0.8
        else value(rng, depth + 1)
        for _ in range(4)
    ]
    kind = rng.randrange(4)
    if kind == 0:
        return call("torch._utils _rebuild_nested_tensor", some_tensor(rng), *parts[1:])
    if kind == 1:
        params = group(b"ctorch\nper_channel_affine\n", *parts[:2], whole(rng.randrange(3)))
        return call(
            "torch._utils _rebuild_qtensor", some_storage(rng, "QInt8"), whole(0),
            dims(3, 2), dims(2, 1), params, b"\x89", HOOKS,
        )  # fmt: skip
    name = rng.choice(("sparse_coo", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr"))
    count = 2 if name == "sparse_coo" else 3
    shape = dims(*(rng.choice((0, 1, 2, 3, 6, 1 << 40)) for _ in range(rng.randrange(4))))
    layout = call("torch.serialization _get_layout", text(f"torch.{name}"))
    data = group(*parts[: count - 1], some_tensor(rng), shape)
    return call("torch._utils _rebuild_sparse_tensor", layout, data)


def invent(rng: random.Random) -> bytes:
    """A whole file around an invented object."""
    body = value(rng)
    if rng.random() < 0.2:
        body = change_bytes(body, rng, 2)
    storages = {}
    for key, name in enumerate(_CLASSES):
        if name == "Long":  # indices, small ones
            storages[str(key)] = struct.pack("<3q", *(rng.choice((0, 0, 1, 2, -1)) for _ in "abc"))
        else:
            storages[str(key)] = bytes(rng.randrange(2) for _ in range(24))
    return Zip(*entries(body, storages)).build()


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One input: from ``data`` or invented."""
    kind = rng.randrange(3)
    if kind == 0:
        return change_bytes(data, rng)
    return change_pickle(data, rng) if kind == 1 else invent(rng)


def legacy(rng: random.Random) -> bytes:
    """A legacy file around an invented object."""
    head = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + pickle(b"M\xe9\x03") + pickle(b"}")
    keys = pickle(b"](" + text("0") + b"e")
    return head + pickle(value(rng)) + keys + struct.pack("<q6f", 6, *range(6))
