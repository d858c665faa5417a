"""Functions and classes that a user marked safe, and files that may do anything."""

from __future__ import annotations

import io
import pickle
import pkgutil
import sys
import types
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builder import call, checkpoint, group, tensor, text, whole

import mortice
from mortice import serialization
from mortice._tensor.construct import as_subclass
from mortice.errors import CheckpointError, InvalidValue

FIXTURES = Path(__file__).parent / "fixtures"

# Classes in a module of their own, so that files can name them.
shop = types.ModuleType("shop")
sys.modules["shop"] = shop
exec(
    """
import mortice
class Plain:
    def __init__(self, *args): self.args = args
class Stateful:
    def __setstate__(self, state): self.state = state
class Slotted:
    __slots__ = ("a", "__dict__")
class Sub(mortice.Tensor): pass
class Hidden: pass
class Unhashable:
    __hash__ = None
def make(*args): return Hidden()
def fail(*args): raise RuntimeError("no")
def told() -> Hidden: return Hidden()
def quoted() -> "Hidden": return Hidden()
class Deep:
    class Inner: pass
""",
    vars(shop),
)


@pytest.fixture(autouse=True)
def nothing_safe() -> Any:
    serialization.clear_safe_globals()
    yield
    serialization.clear_safe_globals()


def new(name: str, args: bytes = b")", state: bytes | None = None) -> bytes:
    return f"cshop\n{name}\n".encode() + args + b"\x81" + (b"" if state is None else state + b"b")


def attributes(**values: bytes) -> bytes:
    return b"}(" + b"".join(text(name) + value for name, value in values.items()) + b"u"


def test_a_class_is_refused_with_a_hint_to_paste() -> None:
    with pytest.raises(CheckpointError) as caught:
        serialization.load(checkpoint(new("Plain")))
    assert caught.value.fix == (
        "If you trust the file: import shop; mortice.serialization.add_safe_globals([shop.Plain])."
    )
    serialization.add_safe_globals([shop.Plain])
    assert isinstance(serialization.load(checkpoint(new("Plain"))), shop.Plain)


def test_objects_are_made_and_filled_as_pickle_does() -> None:
    serialization.add_safe_globals([shop.Plain, shop.Stateful, shop.Slotted, shop.Deep.Inner])
    filled = serialization.load(checkpoint(new("Plain", state=attributes(w=tensor()))))
    assert filled.w.shape == (2, 3)
    made = serialization.load(checkpoint(call("shop Plain", whole(1), tensor())))
    assert made.args[0] == 1
    assert made.args[1].shape == (2, 3)
    assert serialization.load(checkpoint(new("Stateful", state=whole(5)))).state == 5
    slots = group(attributes(b=whole(2)), attributes(a=whole(1)))
    slotted = serialization.load(checkpoint(new("Slotted", state=slots)))
    assert (slotted.a, slotted.b) == (1, 2)
    assert isinstance(serialization.load(checkpoint(new("Deep.Inner"))), shop.Deep.Inner)


def test_the_same_object_stays_one() -> None:
    serialization.add_safe_globals([shop.Plain])
    body = b"](" + new("Plain", state=attributes(x=whole(1))) + b"q\x07h\x07e"
    first, second = serialization.load(checkpoint(body))
    assert first is second


def test_objects_within_objects_are_made_in_order() -> None:
    serialization.add_safe_globals([shop.Plain])
    body = call("shop Plain", call("shop Plain", whole(1)), b"](" + call("shop Plain") + b"e")
    made = serialization.load(checkpoint(body))
    assert made.args[0].args == (1,)
    assert isinstance(made.args[1][0], shop.Plain)


def test_an_argument_that_comes_later_is_refused() -> None:
    serialization.add_safe_globals([shop.Plain])
    # The list that is the first one's argument gets the second one only afterwards.
    body = b"]q\x00" + b"cshop\nPlain\n" + group(b"h\x00") + b"R\x86"
    late = b"h\x00" + call("shop Plain") + b"a"
    body = group(b"]q\x00", call("shop Plain", b"h\x00"), late)
    with pytest.raises(CheckpointError, match="before the file has made it"):
        serialization.load(checkpoint(body))


def test_what_a_safe_function_raises_is_said_with_the_place() -> None:
    serialization.add_safe_globals([shop.fail, shop.Plain])
    with pytest.raises(CheckpointError, match=r"shop\.fail, marked safe, raised RuntimeError: no"):
        serialization.load(checkpoint(call("shop fail")))
    with pytest.raises(CheckpointError, match=r"NEWOBJ of shop\.fail, which is no class"):
        serialization.load(checkpoint(new("fail")))
    with pytest.raises(CheckpointError, match="setting the attributes of a Plain raised"):
        serialization.load(checkpoint(new("Plain", state=whole(5))))


def test_a_class_that_appears_only_at_build() -> None:
    body = call("shop make") + attributes(x=whole(1)) + b"b"
    assert serialization.get_unsafe_globals_in_checkpoint(checkpoint(body)) == ["shop.make"]
    serialization.add_safe_globals([shop.make])
    with pytest.raises(CheckpointError, match=r"made a shop\.Hidden, whose attributes"):
        serialization.load(checkpoint(body))
    assert serialization.get_unsafe_globals_in_checkpoint(checkpoint(body)) == ["shop.Hidden"]
    serialization.add_safe_globals([shop.Hidden])
    assert serialization.get_unsafe_globals_in_checkpoint(checkpoint(body)) == []
    assert serialization.load(checkpoint(body)).x == 1


def test_numpy_scalars_name_the_class_of_their_dtype() -> None:
    buffer = io.BytesIO()
    serialization.save({"best": np.float64(0.5), "steps": np.int32(7)}, buffer)
    buffer.seek(0)
    names = serialization.get_unsafe_globals_in_checkpoint(buffer)
    assert names[1:] == ["numpy.dtype", "numpy.dtypes.Float64DType", "numpy.dtypes.Int32DType"]
    serialization.add_safe_globals([(pkgutil.resolve_name(name), name) for name in names])
    assert serialization.get_unsafe_globals_in_checkpoint(buffer) == []
    assert serialization.load(buffer) == {"best": 0.5, "steps": 7}


def test_a_function_that_says_what_it_returns() -> None:
    for name in ("told", "quoted"):
        body = call(f"shop {name}") + attributes(x=whole(1)) + b"b"
        found = serialization.get_unsafe_globals_in_checkpoint(checkpoint(body))
        assert found == [f"shop.{name}", "shop.Hidden"]


def test_unsafe_globals_beside_safe_ones() -> None:
    serialization.add_safe_globals([shop.make, shop.Plain])
    body = group(
        call("shop make", call("shop Unknown")) + attributes(x=whole(1)) + b"b",
        call("shop make", attributes(t=tensor())) + attributes(x=whole(1)) + b"b",
        new("Plain", state=attributes(x=call("shop Unknown"))),
        b"cshop\nOther\n",
    )
    found = serialization.get_unsafe_globals_in_checkpoint(checkpoint(body))
    assert found == ["shop.Unknown", "shop.Other", "shop.Hidden"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("r02_full_module.pt", ["torch.nn.modules.linear.Linear"]),
        ("r03_tensor_subclass.pt", ["__main__.Sub"]),
        ("h01_global_os_system.pt", ["os.system"]),
        ("g14_state_dict.pt", []),
        ("h76_legacy_evil.pt", ["os.system"]),
        ("g28_legacy.pt", []),
    ],
)
def test_unsafe_globals_of_the_fixtures(name: str, expected: list[str]) -> None:
    assert serialization.get_unsafe_globals_in_checkpoint(FIXTURES / name) == expected


def test_a_tensor_subclass_under_the_name_of_the_file() -> None:
    path = FIXTURES / "r03_tensor_subclass.pt"
    with serialization.safe_globals([(shop.Sub, "__main__.Sub")]):
        loaded = serialization.load(path)
    assert type(loaded) is shop.Sub
    assert loaded._a.tolist() == [1, 1, 1] or loaded.shape == (3,)
    with (
        serialization.safe_globals([(shop.Plain, "__main__.Sub")]),
        pytest.raises(CheckpointError, match="subclass of Tensor"),
    ):
        serialization.load(path)
    with (
        serialization.safe_globals([(shop.make, "__main__.Sub")]),
        pytest.raises(CheckpointError, match="is no class"),
    ):
        serialization.load(path)


def test_subclasses_are_saved_by_name() -> None:
    t = as_subclass(mortice.tensor([1.0, 2.0]), shop.Sub)
    t.note = "kept"
    buffer = io.BytesIO()
    serialization.save({"t": t}, buffer)
    buffer.seek(0)
    assert serialization.get_unsafe_globals_in_checkpoint(buffer) == ["shop.Sub"]
    with serialization.safe_globals([shop.Sub]):
        loaded = serialization.load(buffer)["t"]
    assert type(loaded) is shop.Sub
    assert loaded.note == "kept"


def test_a_tensor_attribute_that_would_hide_a_method() -> None:
    for name, message in (("backward", "would hide"), ("__class__", "would hide")):
        body = call(
            "torch._utils _rebuild_parameter_with_state",
            tensor(), b"\x88", b"ccollections\nOrderedDict\n)R", attributes(**{name: whole(1)}),
        )  # fmt: skip
        with pytest.raises(CheckpointError, match=message):
            serialization.load(checkpoint(body))


def test_safe_globals_restores_what_was_there() -> None:
    serialization.add_safe_globals([shop.Plain])
    with serialization.safe_globals([shop.Plain, shop.make]):
        assert serialization.get_safe_globals() == [shop.Plain, shop.make]
    assert serialization.get_safe_globals() == [shop.Plain]
    serialization.add_safe_globals([shop.Plain])
    assert serialization.get_safe_globals() == [shop.Plain]
    serialization.clear_safe_globals()
    assert serialization.get_safe_globals() == []


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ((shop.make,), "pair"),
        ((shop.make, 5), "pair"),
        ((5, "shop.five"), "no function or class"),
        (5, "no __module__"),
        (eval, "can run programs"),
        (getattr, "can run programs"),
        ((shop.make, "os.system"), "can run programs"),
    ],
)
def test_what_cannot_be_marked_safe(item: Any, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        serialization.add_safe_globals([item])
    assert serialization.get_safe_globals() == []


def test_blocked_names_stay_blocked_however_they_are_marked(monkeypatch: Any) -> None:
    from mortice.serialization import safe

    monkeypatch.setattr(safe, "targets", lambda: {"os.system": (print,)})
    with pytest.raises(CheckpointError, match="can run programs"):
        serialization.load(FIXTURES / "h01_global_os_system.pt")


def test_hints_for_names_of_torch_and_builtins() -> None:
    with pytest.raises(CheckpointError, match=r'add_safe_globals\(\[\(X, "torch.hub.load"\)\]\)'):
        serialization.load(FIXTURES / "h07_global_torch_hub_load.pt")
    with pytest.raises(CheckpointError, match=r"add_safe_globals\(\[range\]\)"):
        serialization.load(checkpoint(call("__builtin__ range", whole(3))))
    serialization.add_safe_globals([range])
    assert serialization.load(checkpoint(call("__builtin__ range", whole(3)))) == range(3)


def test_names_as_values() -> None:
    assert serialization.load(checkpoint(b"ccollections\nOrderedDict\n")) is OrderedDict
    assert serialization.load(checkpoint(b"ctorch\nTensor\n")) is mortice.Tensor
    assert serialization.load(checkpoint(b"ctorch\nfloat16\n")) is mortice.float16
    with pytest.raises(CheckpointError, match="no counterpart"):
        serialization.load(checkpoint(b"ctorch\nper_tensor_affine\n"))
    serialization.add_safe_globals([shop.make])
    assert serialization.load(checkpoint(b"cshop\nmake\n")) is shop.make


def test_tensors_for_keys() -> None:
    body = b"}(" + tensor() + text("a") + group(b"ctorch\nfloat16\n", whole(1)) + text("b") + b"u"
    loaded = serialization.load(checkpoint(body))
    (first, _), (second, _) = loaded.items()
    assert first.shape == (2, 3)
    assert second == (mortice.float16, 1)


def test_objects_for_keys() -> None:
    serialization.add_safe_globals([shop.Plain, shop.Unhashable])
    (key,) = serialization.load(checkpoint(b"}(" + new("Plain") + b"Nu"))
    assert isinstance(key, shop.Plain)
    with pytest.raises(CheckpointError, match="cannot be one"):
        serialization.load(checkpoint(b"}(" + new("Unhashable") + b"Nu"))
    cyclic = b"}q\x00(" + new("Plain", state=attributes(x=b"h\x00")) + b"Nu"
    with pytest.raises(CheckpointError, match="contains itself"):
        serialization.load(checkpoint(cyclic))


# -- weights_only=False ------------------------------------------------------------------------------


class Model:
    def __init__(self) -> None:
        self.weight = mortice.tensor([1.0, 2.0])


def test_anything_loads_when_asked_by_name_and_warns() -> None:
    buffer = io.BytesIO()
    model = shop.Plain()
    model.weight = mortice.tensor([1.0, 2.0])
    model.same = model.weight
    model.things = [{1, 2}, mortice.float16, mortice.Size((2, 3)), mortice.device("cpu")]
    serialization.save(model, buffer)
    buffer.seek(0)
    with pytest.raises(CheckpointError, match=r"shop\.Plain"):
        serialization.load(buffer)
    with pytest.warns(UserWarning, match="can run programs"):
        loaded = serialization.load(buffer, weights_only=False)
    assert type(loaded) is shop.Plain
    assert loaded.weight is loaded.same
    assert loaded.weight._a.tolist() == [1, 2]
    assert loaded.things == model.things


@pytest.mark.parametrize(
    "name",
    ["g01_f32_2x3.pt", "g14_state_dict.pt", "g16_parameter_state.pt", "g17_tensor_attrs.pt",
     "g22_sparse_csr.pt", "g28_legacy.pt", "g29_legacy_shared.pt", "g20_python_types.pt",
     "g19_storages.pt", "g25_protocol4.pt"],
)  # fmt: skip
def test_genuine_files_load_the_same_without_restriction(name: str) -> None:
    from checkpoint_encoding import Encoder

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = serialization.load(FIXTURES / name, weights_only=False, pickle_module=pickle)
    if name == "g25_protocol4.pt":
        assert loaded["a"].shape == (3,)
        return
    assert Encoder().encode(loaded) == Encoder().encode(serialization.load(FIXTURES / name))


def test_damage_is_an_error_of_ours_there_too() -> None:
    with pytest.warns(UserWarning, match="programs"), pytest.raises(CheckpointError):
        serialization.load(FIXTURES / "h46_no_stop.pt", weights_only=False)
    with (
        pytest.warns(UserWarning, match="programs"),
        pytest.raises(CheckpointError, match="reaches byte"),
    ):
        serialization.load(FIXTURES / "h30_size_oob.pt", weights_only=False)
