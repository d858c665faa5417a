"""The pickle reader: what it takes, and how it refuses everything else."""

from __future__ import annotations

import struct
import time
from typing import Any

import numpy as np
import pytest
from builder import (
    FLOAT,
    HOOKS,
    call,
    checkpoint,
    dims,
    group,
    pickle,
    storage,
    tensor,
    text,
    whole,
)  # fmt: skip

from mortice import serialization
from mortice.errors import CheckpointError, MorticeError


def load(body: bytes, storages: dict[str, bytes] | None = None, **arguments: Any) -> Any:
    return serialization.load(checkpoint(body, storages), **arguments)


def parameter(data: bytes, grad: bytes = b"\x88") -> bytes:
    return call("torch._utils _rebuild_parameter", data, grad, HOOKS)


def integers(values: Any, key: str, size: tuple[int, ...]) -> bytes:
    stride = [1] * len(size)
    for axis in range(len(size) - 2, -1, -1):
        stride[axis] = stride[axis + 1] * size[axis + 1]
    ref = storage(key, len(values), b"ctorch\nLongStorage\n")
    return tensor(dims(*size), dims(*stride), data=ref)


def longs(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def layout(name: str) -> bytes:
    return call("torch.serialization _get_layout", text(f"torch.{name}"))


DEEP = b")" + b"\x85" * 300
BOMB = b"]q\x00" + b"".join(
    b"](h" + bytes((i,)) + b"h" + bytes((i,)) + b"eq" + bytes((i + 1,)) for i in range(60)
)
BOMB = b"(" + BOMB + b"t"
CYCLE = b"]q\x00h\x00a"
FAR_CYCLE = b"}q\x00" + text("a") + b"](h\x00es"
WIDE = group(*[b"N"] * 65)

# body -> what the message says
REFUSED: dict[str, tuple[bytes, str]] = {
    "two on the stack": (b"NN", "more or less than one object"),
    "open mark": (b"(N", "more or less than one object"),
    "empty": (b"", "more or less than one object"),
    "underflow of a tuple": (b"N\x86", "more than the stack holds"),
    "underflow of a mark": (b"Nt", "more than the stack or the file"),
    "underflow across a mark": (b"](Na", "more than the stack or the file"),
    "append to a tuple": (b")Na", "APPEND to a tuple"),
    "appends to a tensor": (tensor() + b"(Ne", "APPEND to a tensor"),
    "setitem on a list": (b"]" + text("a") + b"Ns", "SETITEM on a list"),
    "half an item": (b"}(Nu", "key without a value"),
    "a list for a key": (b"}(]Nu", "list is no key"),
    "a list inside a key": (b"}(" + group(b"]", b"N") + b"Nu", "no part of a key"),
    "a large tuple for a key": (b"}(" + WIDE + b"Nu", "more than 64 parts"),
    "a long for a key": (b"}(" + whole(1 << 70) + b"Nu", "no 64-bit integer"),
    "long_binget of nothing": (b"j\x07\x00\x00\x00", "memo entry 7"),
    "a string past the end": (b"X\xff\x00\x00\x00ab", "bytes expected"),
    "a string not in UTF-8": (b"X\x01\x00\x00\x00\xff", "not UTF-8"),
    "a number past the end": (b"J\x01", "inside an opcode"),
    "a global without an end": (b"c" + b"a" * 2000, "without an end"),
    "a global not in UTF-8": (b"c\xff\nx\n", "not UTF-8"),
    "a global with an escape": (b"ca\n\x1b[31mx\n", "control characters"),
    "a persistent id of text": (text("storage") + b"Q", "persistent id"),
    "arguments not in a tuple": (HOOKS[:-2] + b"]R", "for arguments"),
    "a call of a number": (b"K\x01)R", "no function of the file"),
    "a call of a dtype": (b"ctorch\nfloat32\n)R", "no function of the file"),
    "a call of Tensor": (b"ctorch\nTensor\n)R", "no function of the format"),
    "newobj of a function": (b"ctorch._utils\n_rebuild_tensor_v2\n)\x81", "NEWOBJ of"),
    "build on a list": (b"]}b", "BUILD on a list"),
    "build on a tensor": (tensor() + b"}b", "BUILD on a tensor"),
    "build with a tuple": (HOOKS + b")b", "attributes given as a tuple"),
    "an attribute by number": (HOOKS + b"}(K\x01Nub", "not by a string"),
    "a magic attribute": (HOOKS + b"}(" + text("__class__") + b"Nub", "would hide"),
    "a method for an attribute": (HOOKS + b"}(" + text("keys") + b"Nub", "would hide"),
    "deep": (DEEP, "more than 200 deep"),
    "many marks": (b"(" * 900, "open MARKs"),
    "a memo bomb": (BOMB, "nodes when written out"),
    "a cycle": (CYCLE, "contains itself"),
    "a far cycle": (FAR_CYCLE, "contains itself"),
    "a function for a value": (b"ctorch._utils\n_rebuild_tensor_v2\n", "where data belongs"),
    "a function for a key": (b"}(ctorch._utils\n_rebuild_tensor_v2\nNu", "where data belongs"),
    "a function in a key": (
        b"}(" + group(b"ctorch\nFloatStorage\n", b"N") + b"Nu",
        "where data belongs",
    ),
    "a storage class for a value": (FLOAT, "where data belongs"),
    "a protocol of its own": (b"\x80\x03N", "pickle protocol 3"),
    "an unknown opcode": (b"\xffN", "opcode \\(0xff\\)"),
    "a bytearray by number": (call("__builtin__ bytearray", whole(1 << 40)), "not from bytes"),
    "bytes by number": (call("__builtin__ bytes", whole(1 << 40)), "not from bytes"),
    "bytes beyond latin1": (
        call("_codecs encode", text("€"), text("latin1")),
        "beyond latin1",
    ),
    "a complex of text": (call("__builtin__ complex", text("1"), text("2")), "not a number"),
    "a huge complex": (call("__builtin__ complex", whole(1 << 2000), whole(1)), "too large"),
    "a set of nothing": (call("__builtin__ set", b"N"), "not from a list"),
    "a set of lists": (call("__builtin__ set", b"](]e"), "list is no key"),
    "a set of tensors": (call("__builtin__ set", b"](" + tensor() + b"e"), "a tensor inside"),
    "a set of tuples of tensors": (
        call("__builtin__ set", b"](" + group(group(tensor())) + b"e"),
        "a tuple inside",
    ),
    "an ordered dict of text": (call("collections OrderedDict", text("ab")), "list of pairs"),
    "an ordered dict of numbers": (call("collections OrderedDict", b"](K\x01e"), "than pairs"),
    "a counter of a list": (call("collections Counter", b"]"), "not from a dict"),
    "an unknown layout": (layout("wild"), "layout 'torch.wild' is unknown"),
    "a dtype for a layout": (layout("float32"), "is unknown"),
    "a device with a newline": (call("torch device", text("cuda\n")), "names no device"),
    "a device type with a colon": (call("torch device", text("cuda:0"), whole(0)), "no type"),
    "a size of text": (call("torch Size", text("ab")), "not a tuple"),
    "a negative size": (call("torch Size", group(whole(-1))), "whole number"),
    "too many dimensions": (call("torch Size", dims(*[1] * 65)), "of 65 dimensions"),
    "storage location": (tensor(data=storage(where=text("cpu;rm"))), "names no device"),
    "storage key": (tensor(data=storage(key="0/../1")), "not plain letters"),
    "storage key by number": (
        group(text("storage"), FLOAT, whole(0), text("cpu"), whole(6)) + b"Q",
        "storage key a int",
    ),
    "storage size": (tensor(data=storage(numel=-1)), "-1 elements"),
    "storage view": (
        group(text("storage"), FLOAT, text("0"), text("cpu"), whole(6), whole(1)) + b"Q",
        "before 2017",
    ),
    "two sizes of a storage": (b"](" + storage() + storage(numel=5) + b"e", "two sizes"),
    "two locations": (b"](" + storage() + storage(where=text("npu:0")) + b"e", "two locations"),
    "no arguments": (call("torch._utils _rebuild_tensor_v2"), "0 arguments; it takes 6 to 7"),
    "no storage": (tensor(data=b"N"), "not over a storage"),
    "offset of text": (tensor(offset=text("0")), "offset is a str"),
    "size of text": (tensor(size=text("ab")), "size is a str"),
    "size of bools": (tensor(size=group(b"\x88", b"\x88")), "a bool"),
    "requires_grad of text": (tensor(grad=text("yes")), "not True or False"),
    "hooks": (tensor(hooks=b"}(K\x01K\x01u"), "backward hooks"),
    "a stride beyond bytes": (tensor(dims(1), dims(1 << 62)), "a stride of"),
    "one element too far": (tensor(dims(2, 3), dims(3, 1), whole(1)), "reaches byte 28"),
    "a parameter of a number": (parameter(b"K\x01"), "not of a tensor"),
    "a parameter of integers": (parameter(integers([1], "1", (1,))), "only floating point"),
    "a grad on integers": (
        tensor(dims(1), dims(1), data=storage("1", 1, b"ctorch\nLongStorage\n"), grad=b"\x88"),
        "only floating point",
    ),
    "a sparse layout": (
        call("torch._utils _rebuild_sparse_tensor", layout("strided"), b")"),
        "for its layout",
    ),
    "sparse of nothing": (
        call("torch._utils _rebuild_sparse_tensor", layout("sparse_coo"), b"]"),
        "a sparse tensor of a list",
    ),
    "sparse of floats": (
        call(
            "torch._utils _rebuild_sparse_tensor", layout("sparse_coo"),
            group(tensor(), tensor(), dims(2)),
        ),
        "sparse indices of float32",
    ),
    "quantised floats": (
        call(
            "torch._utils _rebuild_qtensor", storage(), whole(0), dims(6), dims(1),
            group(b"ctorch\nper_tensor_affine\n", b"G" + bytes(8), whole(0)), b"\x89", HOOKS,
        ),
        "over a storage of float32",
    ),
    "a nested tensor of floats": (
        call("torch._utils _rebuild_nested_tensor", tensor(), tensor(), tensor(), tensor()),
        "int64 expected",
    ),
    "numpy": (b"cnumpy.core.multiarray\n_reconstruct\n", "safe globals"),
    "wrapper subclass": (b"ctorch._utils\n_rebuild_wrapper_subclass\n", "save what it wraps"),
    "blocked": (b"cposix\nsystem\n", "can run programs"),
    "blocked builtin": (b"c__builtin__\ngetattr\n", "can run programs"),
}  # fmt: skip

STORAGES = {"0": struct.pack("<6f", *range(6)), "1": longs(1), "2": longs(0)}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_place(name: str) -> None:
    body, message = REFUSED[name]
    begun = time.process_time()
    with pytest.raises(CheckpointError, match=message) as caught:
        load(body, STORAGES)
    assert time.process_time() - begun < 10
    assert caught.value.record == "data.pkl"


def test_metadata() -> None:
    for meta, message in (
        (text("conj"), "not a dict"),
        (b"}(" + text("odd") + b"\x88u", "unknown tensor metadata 'odd'"),
        (b"}(" + text("conj") + b"\x88u", "conjugate bit on a tensor of float32"),
        (b"}(" + text("neg") + b"Nu", "not True or False"),
    ):
        with pytest.raises(CheckpointError, match=message):
            load(tensor(dims(2, 3), dims(3, 1), whole(0), None, b"\x89", HOOKS, meta))
    negative = tensor(
        dims(2, 3), dims(3, 1), whole(0), None, b"\x89", HOOKS, b"}(" + text("neg") + b"\x88u"
    )
    assert load(negative)._a.tolist() == [[0, -1, -2], [-3, -4, -5]]
    none = tensor(dims(2, 3), dims(3, 1), whole(0), None, b"\x89", HOOKS, b"N")
    assert load(none)._a.tolist() == [[0, 1, 2], [3, 4, 5]]


def flags(**values: bytes) -> bytes:
    return b"}(" + b"".join(text(name) + value for name, value in values.items()) + b"u"


def over(cls: str, size: int, *more: bytes) -> bytes:
    data = storage("0", 24 // size, f"ctorch\n{cls}\n".encode())
    return tensor(dims(1), dims(1), whole(0), data, b"\x89", HOOKS, *more)


def repeating(*size: int) -> bytes:
    """Indices that are one number, seen again and again."""
    ref = storage("1", 1, b"ctorch\nLongStorage\n")
    return tensor(dims(*size), dims(*[0] * len(size)), data=ref)


MOVED = "torch._utils _rebuild_device_tensor_from_cpu_tensor"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (over("BoolStorage", 1, flags(neg=b"\x88")), "negative bit on a tensor of bool"),
        (over("QInt8Storage", 1, flags(neg=b"\x88")), "negative bit on a tensor of qint8"),
        (tensor(dims(0, 1 << 62, 4), dims(1, 1, 1)), "elements"),
        (tensor(dims(0, 1 << 62), dims(1, 1 << 62)), "a stride of"),
        (
            call(
                "torch._utils _rebuild_sparse_tensor", layout("sparse_coo"),
                group(repeating(1, 1 << 40), tensor(dims(1 << 40), dims(0)), dims(9)),
            ),
            "a table of 1099511627776 indices over a storage of 8 bytes",
        ),
        (
            call(
                "torch._utils _rebuild_nested_tensor", tensor(dims(6), dims(1)),
                repeating(1 << 40, 1), repeating(1 << 40, 1), repeating(1 << 40),
            ),
            "a table of",
        ),
        (call(MOVED, tensor(), b"ctorch\nqint8\n", text("cpu"), b"\x89"), "by way of float32"),
        (call(MOVED, tensor(), b"ctorch\nint64\n", text("cpu"), b"\x88"), "only floating point"),
        (parameter(call(MOVED, tensor(), b"ctorch\nint8\n", text("cpu"), b"\x89")), "a Parameter of int8"),
        (parameter(over("QInt8Storage", 1)), "a Parameter of qint8"),
        (
            call(
                "torch._utils _rebuild_parameter_with_state", tensor(), b"\x88", HOOKS,
                flags(_leaf=b"N"),
            ),
            "'_leaf' of a .* would hide",
        ),
        (
            call(
                "torch._tensor _rebuild_from_type_v2",
                b"ctorch._utils\n_rebuild_sparse_tensor\n", b"ctorch\nTensor\n",
                group(layout("sparse_coo"), group(integers((0,), "1", (1, 1)), tensor(dims(1), dims(1)), dims(3))),
                flags(parts=b"N"),
            ),
            "'parts' of a SparseTensor would hide",
        ),
    ],
)  # fmt: skip
def test_what_only_later_steps_would_stumble_over(body: bytes, message: str) -> None:
    begun = time.process_time()
    with pytest.raises(CheckpointError, match=message):
        load(body, STORAGES)
    assert time.process_time() - begun < 10


def test_whatever_the_rules_miss_is_still_the_error_of_the_file(monkeypatch: Any) -> None:
    from mortice.serialization.tensors import TensorFactory

    def broken(self: Any, storage: Any, spec: Any) -> Any:
        raise ValueError("array is too big")

    monkeypatch.setattr(TensorFactory, "tensor", broken)
    with pytest.raises(CheckpointError, match=r"a tensor cannot be made.*too big"):
        load(tensor())


def test_an_error_of_a_factory_names_the_file(tmp_path: Any) -> None:
    path = tmp_path / "odd.pt"
    path.write_bytes(checkpoint(b"ctorch\nper_tensor_affine\n").getvalue())
    with pytest.raises(CheckpointError, match=r"no counterpart here \(file .*odd.pt"):
        serialization.load(path)


def test_unusual_but_plain_data() -> None:
    assert load(b"]") == []
    assert load(b"\x8f") == set()
    assert load(call("__builtin__ bytes")) == b""
    assert load(call("__builtin__ set")) == set()
    assert load(call("collections OrderedDict", b"](" + group(whole(1), whole(2)) + b"e")) == {1: 2}
    assert load(b"U\x02ab", encoding="bytes") == b"ab"
    assert load(b"U\x02ab") == "ab"
    assert load(b"ccollections\nOrderedDict\n)\x81") == {}
    assert load(b"ctorch\nSize\n)R") == ()
    assert load(call("torch device", text("cpu"))).type == "cpu"
    assert load(call("torch device", text("meta"), b"N")).type == "meta"
    assert load(b"Nr\x00\x01\x00\x00") is None
    many = {(i, i): i for i in range(100)}
    body = b"}(" + b"".join(group(whole(i), whole(i)) + whole(i) for i in range(100)) + b"u"
    assert load(body) == many


def test_python2_strings_that_do_not_decode_say_how() -> None:
    with pytest.raises(CheckpointError, match="encoding='latin1'"):
        load(b"U\x01\xff")
    assert load(b"U\x01\xff", encoding="latin1") == "ÿ"


def test_keys_made_to_collide_are_refused() -> None:
    # Tuples of one integer hash by an invertible function of it: these are all equal.
    import sys

    if sys.hash_info.width != 64:
        return
    keys = []
    for first in range(20000):
        key = _colliding(first, 0x1234567)
        if key is not None:
            keys.append(key)
        if len(keys) > 40:
            break
    assert len({hash(key) for key in keys}) == 1
    body = b"}(" + b"".join(group(*map(whole, key)) + b"N" for key in keys) + b"u"
    with pytest.raises(CheckpointError, match="many keys with one hash"):
        load(body)


def _colliding(first: int, target: int) -> tuple[int, int] | None:
    """A pair (first, x) whose hash is ``target``, by running CPython's tuple hash backwards."""
    mask, p1, p2, p5 = (
        (1 << 64) - 1,
        11400714785074694791,
        14029467366897019727,
        2870177450012600261,
    )

    def rotate(value: int, by: int) -> int:
        return ((value << by) | (value >> (64 - by))) & mask

    acc = (rotate((p5 + first * p2) & mask, 31) * p1) & mask
    wanted = (target - (2 ^ (p5 ^ 3527539))) & mask
    before = rotate(wanted * pow(p1, -1, 1 << 64) & mask, 33)
    lane = (before - acc) * pow(p2, -1, 1 << 64) & mask
    return (first, lane) if lane < (1 << 61) - 1 else None


def test_memory_is_bounded_and_the_bound_raisable() -> None:
    body = b"](" + b"}" * 100_000 + b"e"
    limits = {"objects_memory": 1 << 20}
    with pytest.raises(CheckpointError, match=r"over 1048576 bytes.*objects_memory"):
        load(body, limits=limits)
    assert len(load(body)) == 100_000
    long = text("x" * 1000)
    with pytest.raises(CheckpointError, match="objects_memory"):
        load(b"](" + long * 2000 + b"e", limits=limits)


def test_limits_of_shape_are_raisable() -> None:
    deep = load(DEEP, limits={"depth": 400})
    for _ in range(300):
        (deep,) = deep
    assert deep == ()
    cyclic = load(CYCLE, limits={"cycles": 1})
    assert cyclic[0] is cyclic
    with pytest.raises(CheckpointError, match="recursion"):
        load(b"]" * 30000 + b"a" * 29999, limits={"depth": 40000})
    with pytest.raises(CheckpointError, match="device_types"):
        load(
            b"](" + b"".join(storage(str(i), 6, FLOAT, text(f"npu{i}")) for i in range(3)) + b"e",
            {str(i): bytes(24) for i in range(3)},
            limits={"device_types": 2},
        )


def test_trailing_bytes_are_refused() -> None:
    with pytest.raises(CheckpointError, match="after the pickle's STOP"):
        load(b"N.N")


# -- what only the values show -----------------------------------------------------------------


def coo(indices: tuple[int, ...], size: tuple[int, ...], dense: int = 1) -> tuple[bytes, Any]:
    count = len(indices)
    body = call(
        "torch._utils _rebuild_sparse_tensor",
        layout("sparse_coo"),
        group(
            integers(indices, "1", (1, count)),
            tensor(dims(*[count] * dense), dims(*[1] * dense), data=storage("0", count)),
            dims(*size),
            b"\x89",
        ),
    )
    return body, {"0": struct.pack(f"<{count}f", *range(count)), "1": longs(*indices)}


def test_coo_loads_and_converts() -> None:
    t = load(*coo((0, 2, 2), (3,)))
    assert t.to_dense()._a.tolist() == [0, 0, 3]
    assert t.is_sparse
    assert not t.is_coalesced()
    assert t.indices().shape == (1, 3)
    assert t.size(0) == 3
    with pytest.raises(MorticeError, match="not a part of"):
        t.crow_indices()
    with pytest.raises(MorticeError, match=r"to_dense\(\)"):
        t.abs()


@pytest.mark.parametrize(
    ("indices", "size", "message"),
    [
        ((0, 3), (3,), "index 3 in dimension 0"),
        ((0, -1), (3,), "index -1 in dimension 0"),
        ((0, 1), (3, 3), "1 sparse dimensions"),
    ],
)
def test_coo_outside_is_refused(
    indices: tuple[int, ...], size: tuple[int, ...], message: str
) -> None:
    body, storages = coo(indices, size)
    with pytest.raises(CheckpointError, match=message):
        load(body, storages)
    if "index" in message:
        # Without data there is nothing to be outside of.
        assert load(body, storages, map_location="meta").device.type == "meta"


def compressed(
    name: str, pointers: tuple[int, ...], plain: tuple[int, ...], size: tuple[int, ...],
    block: tuple[int, ...] = (),
) -> Any:  # fmt: skip
    count = len(plain)
    values = (count, *block)
    stride = tuple(int(np.prod(values[axis + 1 :])) for axis in range(len(values)))
    numel = int(np.prod(values))
    body = call(
        "torch._utils _rebuild_sparse_tensor",
        layout(name),
        group(
            integers(pointers, "1", (len(pointers),)),
            integers(plain, "2", (count,)),
            tensor(dims(*values), dims(*stride), data=storage("0", numel)),
            dims(*size),
        ),
    )
    return load(
        body,
        {
            "0": struct.pack(f"<{numel}f", *range(1, numel + 1)),
            "1": longs(*pointers),
            "2": longs(*plain),
        },
    )


def test_compressed_layouts_load_and_convert() -> None:
    csr = compressed("sparse_csr", (0, 1, 3), (1, 0, 2), (2, 3))
    assert csr.to_dense()._a.tolist() == [[0, 1, 0], [2, 0, 3]]
    assert csr.crow_indices().shape == (3,)
    assert csr.col_indices().shape == (3,)
    csc = compressed("sparse_csc", (0, 1, 3), (1, 0, 2), (3, 2))
    assert csc.to_dense()._a.tolist() == [[0, 2], [1, 0], [0, 3]]
    assert csc.ccol_indices().shape == (3,)
    assert csc.row_indices().shape == (3,)
    bsr = compressed("sparse_bsr", (0, 1), (1,), (2, 4), (2, 2))
    assert bsr.to_dense()._a.tolist() == [[0, 0, 1, 2], [0, 0, 3, 4]]
    assert "sparse_bsr" in repr(bsr)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sparse_csr", (0, 1, 3), (1, 0, 3), (2, 3)), "plain index outside"),
        (("sparse_csr", (0, 1, 3), (1, 0, -1), (2, 3)), "plain index outside"),
        (("sparse_csr", (0, 4, 3), (1, 0, 2), (2, 3)), "compressed index outside"),
        (("sparse_csr", (1, 1, 3), (1, 0, 2), (2, 3)), "do not run from 0"),
        (("sparse_csr", (0, 3, 2, 3), (1, 0, 2), (3, 3)), "fall, or rise"),
        (("sparse_csr", (0, 3), (1, 0, 2), (2, 3)), "compressed indices of size"),
        (("sparse_csr", (0, 3), (1, 0, 2), (3,)), "0 batch dimensions"),
        (("sparse_bsr", (0, 1), (1,), (2, 5), (2, 2)), "blocks of size"),
    ],
)
def test_compressed_layouts_that_do_not_hold(arguments: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        compressed(*arguments)


def nested(sizes: tuple[int, ...], strides: tuple[int, ...], offsets: tuple[int, ...]) -> Any:
    count = len(offsets)
    body = call(
        "torch._utils _rebuild_nested_tensor",
        tensor(dims(6), dims(1)),
        integers(sizes, "1", (count, len(sizes) // count)),
        integers(strides, "2", (count, len(strides) // count)),
        integers(offsets, "3", (count,)),
    )
    return load(
        body,
        {
            "0": struct.pack("<6f", *range(6)),
            "1": longs(*sizes),
            "2": longs(*strides),
            "3": longs(*offsets),
        },
    )


def test_nested_tensors() -> None:
    t = nested((2, 2, 1, 2), (2, 1, 2, 1), (0, 4))
    assert [part._a.tolist() for part in t.unbind()] == [[[0, 1], [2, 3]], [[4, 5]]]
    for sizes, strides, offsets in (
        ((2, 4), (1, 1), (0, 3)),
        ((2, 2), (1, 1), (0, -1)),
        ((2, -2), (1, 1), (0, 2)),
    ):
        with pytest.raises(CheckpointError, match="outside its buffer"):
            nested(sizes, strides, offsets)
    with pytest.raises(CheckpointError, match="do not fit each other"):
        nested((2, 2), (1, 1, 1, 1), (0, 2))


def quantised(params: bytes, cls: str = "QInt8Storage", grad: bytes = b"\x89") -> Any:
    body = call(
        "torch._utils _rebuild_qtensor",
        storage("0", 6, f"ctorch\n{cls}\n".encode()),
        whole(0), dims(2, 3), dims(3, 1), params, grad, HOOKS,
    )  # fmt: skip
    scales = struct.pack("<2d", 0.5, 2.0)
    return load(body, {"0": bytes((0, 1, 2, 253, 254, 255)), "1": longs(0, 1), "2": scales})


def number(value: float) -> bytes:
    return b"G" + struct.pack(">d", value)


def test_quantised_tensors() -> None:
    whole_tensor = group(b"ctorch\nper_tensor_affine\n", number(0.5), whole(1))
    t = quantised(whole_tensor)
    assert t.dequantize()._a.tolist() == [[-0.5, 0, 0.5], [-2, -1.5, -1]]
    assert t.int_repr()._a.tolist() == [[0, 1, 2], [-3, -2, -1]]
    scales = tensor(dims(2), dims(1), data=storage("2", 2, b"ctorch\nDoubleStorage\n"))
    zeros = integers((0, 1), "1", (2,))
    channels = group(b"ctorch\nper_channel_affine\n", scales, zeros, whole(0))
    assert quantised(channels).dequantize()._a.tolist() == [[0, 0.5, 1], [-8, -6, -4]]
    lists = group(
        b"ctorch\nper_channel_affine\n",
        b"](" + number(0.5) + number(2.0) + b"e", b"](K\x00K\x01e", whole(0),
    )  # fmt: skip
    assert quantised(lists).dequantize()._a.tolist() == [[0, 0.5, 1], [-8, -6, -4]]
    for params, message in (
        (b")", "for the parameters"),
        (group(b"ctorch\nper_tensor_affine\n"), "1 arguments"),
        (group(b"ctorch\nper_tensor_affine\n", text("x"), whole(1)), "not a number"),
        (group(b"ctorch\nper_tensor_symmetric\n", whole(1)), "quantisation scheme"),
        (group(b"ctorch\nper_channel_affine\n", scales, zeros, whole(1)), "for 3 channels"),
        (group(b"ctorch\nper_channel_affine\n", b"](Ne", zeros, whole(0)), "not a number"),
    ):
        with pytest.raises(CheckpointError, match=message):
            quantised(params)
    with pytest.raises(CheckpointError, match="requires_grad on a quantised"):
        quantised(whole_tensor, grad=b"\x88")


def test_a_tensor_that_went_by_way_of_the_cpu() -> None:
    body = call(
        "torch._utils _rebuild_device_tensor_from_cpu_tensor",
        tensor(), b"ctorch\nfloat32\n", text("cpu"), b"\x88",
    )  # fmt: skip
    t = load(body)
    assert t._a.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert t.requires_grad


def test_the_pickle_is_read_as_given() -> None:
    assert pickle(b"N") == b"\x80\x02N."
