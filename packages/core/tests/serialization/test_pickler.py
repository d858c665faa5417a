"""The pickler on objects of every kind: the bytes are those of the standard one."""

from __future__ import annotations

import datetime as dt
import fractions
import io
import json
import pathlib
import pickle
import queue
import sys
import types
from collections import OrderedDict, defaultdict, deque
from typing import Any

import numpy as np
import pytest

import mortice
from mortice import serialization
from mortice.errors import InvalidState, InvalidValue
from mortice.serialization.opaque import NestedTensor, QuantizedTensor, SparseTensor
from mortice.serialization.pickler import Pickler

stock = types.ModuleType("stock")
sys.modules["stock"] = stock
exec(
    """
class Plain: pass
class State:
    def __getstate__(self): return {"a": 1}
class Named:
    def __reduce__(self): return "NAMED"
NAMED = Named()
class Keyword:
    def __getnewargs_ex__(self): return (), {"a": 1}
class Loop:
    def __reduce__(self): return (Loop, (self,))
class Many(list): pass
class Table(dict): pass
""",
    vars(stock),
)


def dump(obj: Any) -> bytes:
    return Pickler(lambda obj: None).dump(obj)


def objects() -> dict[str, Any]:
    plain = stock.Plain()
    plain.a = [1, plain.__class__]
    many = stock.Many(range(2001))
    table = stock.Table((i, i) for i in range(1001))
    return {
        "plain": plain, "state": stock.State(), "named": stock.NAMED, "class": stock.Plain,
        "function": json.dumps, "renamed": queue.Empty, "builtin": len, "many": many, "one": stock.Many([1]),
        "table": table, "default": defaultdict(list, a=[1]), "deque": deque([1, 2], maxlen=3),
        "date": dt.date(2026, 1, 2), "fraction": fractions.Fraction(1, 3),
        "path": pathlib.PurePosixPath("/a/b"), "range": range(5), "slice": slice(1, 2),
        "same": [plain, plain], "array": np.arange(3), "scalar": np.float32(1),
        "ellipsis": ..., "type": int,
    }  # fmt: skip


# Where the standard pickler itself has other names in other versions of Python.
@pytest.mark.parametrize("name", sorted(objects()))
def test_the_bytes_of_the_standard_pickler(name: str) -> None:
    obj = objects()[name]
    if name in ("ellipsis", "range", "slice", "type", "builtin", "array", "scalar"):
        # Names that protocol 2 maps to Python 2 come out alike when read again.
        again = pickle.loads(dump(obj))
        assert repr(again) == repr(obj)
        return
    assert dump(obj) == pickle.dumps(obj, 2)


def test_recursive_data_is_written_as_pickle_does() -> None:
    for length in (1, 5):
        inner: list[Any] = []
        recursive = (inner,) * length
        inner.append(recursive)
        assert dump(recursive) == pickle.dumps(recursive, 2)


@pytest.mark.parametrize(
    ("obj", "error", "message"),
    [
        (stock.Keyword(), InvalidValue, "keyword arguments"),
        (stock.Loop(), InvalidValue, "nested too deeply"),
        ((i for i in ()), InvalidValue, "cannot be saved"),
        (lambda: 0, InvalidValue, "no lambda"),
        (1 << 3000, InvalidValue, "Save it as a string"),
    ],
)
def test_what_cannot_be_said(obj: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        dump(obj)


def test_a_name_with_a_newline() -> None:
    cls = type("A\nB", (), {"__module__": "stock"})
    vars(stock)["A\nB"] = cls
    with pytest.raises(InvalidValue, match="cannot be named"):
        dump(cls)


# -- what the tensors of this package are described as -----------------------------------------------


def again(obj: Any) -> Any:
    buffer = io.BytesIO()
    serialization.save(obj, buffer)
    buffer.seek(0)
    return serialization.load(buffer)


def longs(*values: int) -> Any:
    return mortice.from_numpy(np.array(values, np.int64))


def test_tensors_that_only_load_convert_and_save() -> None:
    values = mortice.from_numpy(np.array([1, 2], np.float32))
    indices = mortice.from_numpy(np.array([[0, 2]], np.int64))
    sparse = again(SparseTensor("sparse_coo", (indices, values), (4,), True))
    assert sparse.is_coalesced()
    assert sparse.to_dense().tolist() == [1, 0, 2, 0]
    assert "sparse_coo" in repr(sparse)
    data = mortice.from_numpy(np.arange(4, dtype=np.int8))
    integers = serialization.tensors.make.from_storage(data.untyped_storage(), mortice.qint8, (4,))
    quantised = again(QuantizedTensor(integers, "per_tensor_affine", 0.5, 1, None))
    assert quantised.dequantize().tolist() == [-0.5, 0, 0.5, 1]
    assert quantised.shape == (4,)
    assert quantised.dtype is mortice.qint8
    assert "per_tensor_affine" in repr(quantised)
    parts = (values, longs(1, 1).reshape(2, 1), longs(1, 1).reshape(2, 1), longs(0, 1))
    nested = again(NestedTensor(parts))
    assert [part.tolist() for part in nested.unbind()] == [[1], [2]]
    assert nested.device.type == "cpu"
    assert "of 2" in repr(nested)
    for opaque, fix in ((sparse, "to_dense"), (quantised, "dequantize"), (nested, "unbind")):
        with pytest.raises(InvalidState, match=fix):
            opaque.matmul(1)
        assert not hasattr(opaque, "__matmul__")


def test_values_of_our_own_types() -> None:
    values = {
        "size": mortice.Size((2, 3)), "device": mortice.device("cpu"), "dtype": mortice.bfloat16,
        "layouts": [mortice.strided, mortice.sparse_coo, mortice.strided],
        "ordered": OrderedDict(a=mortice.float32),
    }  # fmt: skip
    loaded = again(values)
    assert loaded == values
    assert type(loaded["size"]) is mortice.Size


def test_a_storage_whose_size_fits_no_element() -> None:
    raw = mortice.from_numpy(np.arange(7, dtype=np.uint8)).untyped_storage()
    t = serialization.tensors.make.from_storage(raw, mortice.int16, (3,))
    loaded = again(t)
    assert loaded.tolist() == t.tolist()
    assert loaded.untyped_storage().nbytes() == 7
