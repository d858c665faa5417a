"""Files by PyTorch 2.13, hand-made ones and hostile ones, with the outcome that each must have."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from checkpoint_encoding import Encoder

from mortice import serialization
from mortice.errors import CheckpointError
from mortice.serialization.tensors import parameter_class

FIXTURES = Path(__file__).parent / "fixtures"
EXPECTED: dict[str, Any] = json.loads((FIXTURES / "expected.json").read_text())

GOOD = [
    (name, number, load)
    for name, entry in EXPECTED.items()
    if name.startswith("g")
    for number, load in enumerate(entry["loads"])
]
HOSTILE = [name for name in EXPECTED if name[0] in "hr"]


@pytest.mark.parametrize(
    ("name", "load"), [pytest.param(n, e, id=f"{n[:-3]}-{i}") for n, i, e in GOOD]
)
def test_a_genuine_file_loads_as_in_pytorch(name: str, load: dict[str, Any]) -> None:
    arguments = dict(load["kwargs"])
    if not load["ok"]:
        with pytest.raises(CheckpointError, match=name):
            serialization.load(FIXTURES / name, **arguments)
        return
    loaded = serialization.load(FIXTURES / name, **arguments)
    assert Encoder().encode(loaded) == _expected(name, load["value"])


def _expected(name: str, value: Any) -> Any:
    if name == "g16_parameter_state.pt" and parameter_class() is None:
        # Without mortice-nn a Parameter is a tensor that requires_grad.
        return {**value, "kind": "tensor", "class": "Tensor"}
    if name == "g08_conj.pt":
        return _conjugated(value)
    return value


def _conjugated(value: Any) -> Any:
    # There are no lazily conjugated views here: loading makes a copy with the same elements.
    items = json.loads(json.dumps(value["items"]))
    lazy, plain = items[0][1], items[1][1]
    del lazy["conj"]
    plain["storage"] = 1
    return {**value, "items": items}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_and_the_place_named(name: str) -> None:
    path = FIXTURES / name
    with pytest.raises(CheckpointError) as caught:
        serialization.load(path)
    error = caught.value
    assert str(path) in str(error)
    assert error.path == str(path)
    assert error.fix or error.offset is not None or error.file_offset is not None


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_under_mmap(name: str) -> None:
    with pytest.raises(CheckpointError):
        serialization.load(FIXTURES / name, mmap=True, verify=True)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_on_the_meta_device(name: str) -> None:
    # What only the data shows (a flipped byte, indices out of range) is not read there.
    if name in ("h70_payload_bitflip.pt", "h55_sparse_oob.pt", "h82_nested_oob.pt"):
        return
    with pytest.raises(CheckpointError):
        serialization.load(FIXTURES / name, map_location="meta")


def test_a_flipped_payload_byte_is_found_wherever_data_is_verified() -> None:
    path = FIXTURES / "h70_payload_bitflip.pt"
    with pytest.raises(CheckpointError, match=r"checksum .* record 'data/0'"):
        serialization.load(path)
    with pytest.raises(CheckpointError, match="checksum"):
        serialization.load(path, mmap=True, verify=True)
    # Mapped data is not read to be checked, unless asked; and a user may want what is left.
    assert list(serialization.load(path, mmap=True).shape) == [2, 3]
    assert list(serialization.load(path, verify=False).shape) == [2, 3]


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_of_a_hostile_file_runs(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    # The payloads make a file where they run.
    monkeypatch.chdir(tmp_path)
    for read in (
        serialization.load,
        serialization.inspect,
        serialization.get_unsafe_globals_in_checkpoint,
    ):
        with contextlib.suppress(CheckpointError):
            read(FIXTURES / name)
    assert list(tmp_path.iterdir()) == []
    assert not EXPECTED[name].get("pwned")


def test_every_fixture_is_covered() -> None:
    files = {path.name for path in FIXTURES.glob("*.pt")}
    assert files == set(EXPECTED)
    assert len(files) == 82
