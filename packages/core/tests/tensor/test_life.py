"""A tensor's life outside operators: copies, pickles, foreign memory, other processes."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import mortice
import mortice.multiprocessing
from mortice.errors import AutogradError, DeviceError, InvalidState, InvalidValue

DTYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int64",
    "uint8",
    "bool",
    "complex64",
    "float8_e5m2",
)


def made(name):
    return mortice.tensor([[0, 1, 2], [1, 0, 1]]).to(getattr(mortice, name))


def bits(t):
    return np.ascontiguousarray(t.cpu()._a).tobytes()


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("protocol", [2, 5])
def test_pickles(name, protocol):
    x = made(name).t()
    y = pickle.loads(pickle.dumps(x, protocol))
    assert y.dtype is x.dtype
    assert y.stride() == x.stride()
    assert bits(y) == bits(x)


def test_what_shares_memory_before_shares_it_after():
    x = mortice.zeros(2, 3)
    for twin in (lambda o: pickle.loads(pickle.dumps(o)), copy.deepcopy):
        a, b = twin((x, x[1]))
        b.fill_(7)
        assert a.tolist() == [[0, 0, 0], [7, 7, 7]]
        assert x.sum().item() == 0
    shallow = copy.copy(x)
    shallow[0, 0] = 1
    assert x[0, 0].item() == 1


def test_attributes_gradients_and_classes_are_kept():
    class Mine(mortice.Tensor):
        pass

    x = mortice.ones(2).as_subclass(Mine).requires_grad_()
    x.note = ["a"]
    (x * 2).sum().backward()
    y = copy.deepcopy(x)
    assert type(y) is Mine
    assert y.requires_grad
    assert y.grad.tolist() == [2, 2]
    assert y.note == ["a"]
    assert y.note is not x.note
    assert copy.deepcopy({1: x, 2: x})[1] is not x
    twice = copy.deepcopy([x, x])
    assert twice[0] is twice[1]
    with pytest.raises(AutogradError, match="graph leaves"):
        copy.deepcopy(x * 2)


def test_meta_tensors_travel_without_data():
    x = mortice.empty(1 << 40, device="meta")
    assert len(pickle.dumps(x)) < 1000
    assert tuple(pickle.loads(pickle.dumps(x)).shape) == (1 << 40,)
    assert copy.deepcopy(x).is_meta


@pytest.mark.parametrize("name", DTYPES)
def test_dlpack_there_and_back(name):
    x = made(name).t()
    y = mortice.from_dlpack(x)
    assert y.dtype is x.dtype
    assert y.stride() == x.stride()
    assert y.data_ptr() == x.data_ptr()
    z = mortice.from_dlpack(mortice.utils.dlpack.to_dlpack(x))
    assert bits(z) == bits(x)


def test_dlpack_with_numpy_shares_memory_and_keeps_it_alive():
    a = np.arange(6.0).reshape(2, 3)
    x = mortice.from_dlpack(a)
    x[0, 0] = 9
    assert a[0, 0] == 9
    alive = weakref.ref(a)
    del a
    gc.collect()
    assert x.tolist() == [[9, 1, 2], [3, 4, 5]]
    del x
    gc.collect()
    assert alive() is None
    b = np.from_dlpack(mortice.arange(3))
    gc.collect()
    assert b.tolist() == [0, 1, 2]


def test_dlpack_refusals():
    with pytest.raises(AutogradError, match="detach"):
        mortice.from_dlpack(mortice.ones(1, requires_grad=True))
    with pytest.raises(DeviceError, match="meta"):
        mortice.from_dlpack(mortice.ones(1, device="meta"))
    capsule = mortice.utils.dlpack.to_dlpack(mortice.ones(1))
    mortice.from_dlpack(capsule)
    with pytest.raises(InvalidValue, match="consumed"):
        mortice.from_dlpack(capsule)
    with pytest.raises(InvalidValue, match="found int"):
        mortice.from_dlpack(3)


def test_numpy_shares_memory():
    a = np.zeros(3)
    x = mortice.from_numpy(a)
    x[0] = 1
    x.numpy()[1] = 2
    assert a.tolist() == [1, 2, 0]
    assert np.asarray(x) is not None
    assert np.array(x, dtype=np.float32).dtype == np.float32
    with pytest.raises(AutogradError, match="detach"):
        mortice.ones(1, requires_grad=True).numpy()
    with pytest.raises(InvalidValue, match="negative"):
        mortice.from_numpy(np.arange(3)[::-1])
    with pytest.warns(UserWarning, match="not writable"):
        mortice.from_numpy(np.broadcast_to(np.zeros(1), (3,)))


def test_buffers():
    data = bytearray(8)
    x = mortice.frombuffer(data, dtype=mortice.int32)
    x[1] = 1
    assert data[4] == 1
    assert tuple(mortice.frombuffer(data, dtype=mortice.uint8, count=2, offset=3).shape) == (2,)
    with pytest.raises(InvalidValue, match="multiple of element size"):
        mortice.frombuffer(data, dtype=mortice.int32, offset=1)


def test_weak_references_and_attributes():
    x = mortice.ones(1)
    x.name_of_mine = 3
    alive = weakref.ref(x)
    assert alive().name_of_mine == 3
    del x
    gc.collect()
    assert alive() is None


def test_storages():
    x = mortice.zeros(4, dtype=mortice.uint8)
    s = x.untyped_storage()
    assert s is x[1:].untyped_storage()
    s[1] = 5
    assert x.tolist() == s.tolist() == [0, 5, 0, 0]
    assert len(s) == s.nbytes() == 4
    view = x[2:]
    s.resize_(8)
    view.fill_(3)
    assert s.tolist()[:4] == [0, 5, 3, 3]
    assert x.storage()[2] == 3
    other = copy.deepcopy(s)
    other.fill_(1)
    assert x.tolist() == [0, 5, 3, 3]
    with pytest.raises(InvalidState, match="4 bytes"):
        mortice.zeros(1).untyped_storage().copy_(mortice.zeros(2).untyped_storage())


def _write(given, done):
    x = given.get(timeout=60)
    x[0] = 5.0
    done.put(tuple(x.shape))


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_workers_share_memory(method):
    if method not in mortice.multiprocessing.get_all_start_methods():
        pytest.skip("this system has no fork")
    context = mortice.multiprocessing.get_context(method)
    given, done = context.Queue(), context.Queue()
    worker = context.Process(target=_write, args=(given, done))
    worker.start()
    x = mortice.zeros(3)
    view = x[:1]
    given.put(x)
    assert done.get(timeout=60) == (3,)
    worker.join(60)
    assert worker.exitcode == 0
    assert x.is_shared()
    assert x.tolist() == [5, 0, 0]
    assert view.tolist() == [5]


def test_elements_by_a_python_function():
    assert mortice.tensor([1.0, 2.0]).apply_(lambda v: v * 2).tolist() == [2, 4]
    assert mortice.tensor([1, 2]).map_(mortice.tensor([3, 4]), lambda a, b: a + b).tolist() == [
        4,
        6,
    ]


def test_reversed_and_deleted_rows():
    x = mortice.tensor([[1, 2], [3, 4]])
    assert reversed(x).tolist() == [[3, 4], [1, 2]]
    with pytest.raises(TypeError, match="cannot be deleted"):
        del x[0]


def test_arrays_are_told_to_be_converted():
    with pytest.raises(TypeError, match=r"not ndarray\. Convert it with mortice\.as_tensor"):
        mortice.add(mortice.ones(3), np.ones(3))


def test_limits_of_dtypes():
    assert mortice.finfo(mortice.float32).eps == 2.0**-23
    assert mortice.finfo(mortice.bfloat16).bits == 16
    assert mortice.iinfo(mortice.int8).min == -128
    assert mortice.promote_types(mortice.int8, mortice.uint8) is mortice.int16
    assert mortice.result_type(mortice.ones(1, dtype=mortice.int32), 1.5) is mortice.float32
    assert not mortice.can_cast(mortice.float32, mortice.int32)


def test_subclasses_stay_what_they_are_when_indexed():
    class Mine(mortice.Tensor):
        pass

    x = mortice.arange(6).view(2, 3).as_subclass(Mine)
    for found in (x[0], x[:, 1], x[None], x[[0]], x[x[:, 0] > 0], x.view(-1), next(iter(x))):
        assert type(found) is Mine
    x[0] = 7
    x[:, 1] = mortice.zeros(2, dtype=mortice.int64).as_subclass(Mine)
    assert x.tolist() == [[7, 0, 7], [3, 0, 5]]


def test_a_class_sees_that_it_is_indexed():
    seen = []

    class Spy(mortice.Tensor):
        @classmethod
        def __mortice_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return super().__mortice_function__(func, types, args, kwargs or {})

    x = mortice.zeros(3).as_subclass(Spy)
    x[0] = 1
    assert x[0].item() == 1
    assert seen[:2] == [mortice.Tensor.__setitem__, mortice.Tensor.__getitem__]


def test_numpys_functions_and_operators():
    x = mortice.tensor([1.0, 4.0])
    assert type(np.sqrt(x)) is mortice.Tensor
    assert np.sqrt(x).tolist() == [1, 2]
    assert type(x + np.ones(2)) is mortice.Tensor
    assert (np.array([1.0, 2.0]) == x).tolist() == [True, False]
    assert (np.float64(2) * x).tolist() == [2, 8]
    assert np.asarray(x, copy=False)[1] == 4
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(x, dtype=np.int32, copy=False)
    assert np.arange(5)[mortice.tensor([1, 2])].tolist() == [1, 2]
    assert mortice.tensor([np.float64(1), np.float64(2)]).dtype is mortice.float64
    assert mortice.tensor([np.ones(2, np.int8)]).dtype is mortice.int8
