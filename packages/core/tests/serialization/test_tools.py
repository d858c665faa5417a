"""``inspect`` and ``convert``, as functions and as commands."""

from __future__ import annotations

import datetime as dt
import fractions
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mortice
from mortice import serialization
from mortice._tensor import make
from mortice.cli import main
from mortice.errors import CheckpointError, InvalidValue, Unavailable
from mortice.serialization.safe import paste_all

FIXTURES = Path(__file__).parent / "fixtures"
needs_safetensors = pytest.mark.skipif(
    importlib.util.find_spec("safetensors") is None, reason="the extra safetensors is not installed"
)


def run(capsys: Any, *arguments: Any) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    code = caught.value.code
    return (code if isinstance(code, int) else 0), out, err


def test_inspect_lists_tensors_values_and_globals() -> None:
    found = serialization.inspect(FIXTURES / "g10_shared_views.pt")
    assert [row.name for row in found.rows] == ["base", "row1", "T", "col", "alias"]
    assert [row.shares for row in found.rows] == [False, True, True, True, True]
    assert found.rows[2].shape == (4, 3)
    assert found.storage_bytes == 48
    assert found.globals[:2] == ["torch._utils._rebuild_tensor_v2", "torch.FloatStorage"]
    assert found.unsafe == []
    assert ("data/0", 48) in [record[:2] for record in found.records]


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.glob("g*.pt")))
def test_inspect_reads_all_that_load_reads(name: str) -> None:
    if name in ("g25_protocol4.pt", "g37_no_version.pt"):
        with pytest.raises(CheckpointError):
            serialization.inspect(FIXTURES / name)
        return
    found = serialization.inspect(FIXTURES / name)
    assert found.rows or found.others
    assert found.unsafe == []


def test_inspect_reads_no_storage(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    data = bytearray((FIXTURES / "h70_payload_bitflip.pt").read_bytes())
    path.write_bytes(data)
    assert serialization.inspect(path).rows[0].shape == (2, 3)


def test_one_line_allows_all_globals() -> None:
    names = ["torch.nn.modules.linear.Linear", "torch.Foo", "collections.abc.Sized", "torch.optim.sgd.SGD",
             "builtins.set"]  # fmt: skip
    line = paste_all(names)
    assert line == (
        "import mortice.serialization, mortice.nn, collections.abc, mortice.optim; "
        'mortice.serialization.add_safe_globals([mortice.nn.Linear, (X2, "torch.Foo"), '
        "collections.abc.Sized, mortice.optim.SGD, set])"
    )
    compile(line, "hint", "exec")


def test_inspect_command_allows_several_at_once(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "several.pt"
    mortice.save([dt.timedelta(1), fractions.Fraction(1, 2)], path)
    code, out, _ = run(capsys, "inspect", path)
    assert code == 1
    unsafe = serialization.inspect(path).unsafe
    assert sorted(unsafe) == ["datetime.timedelta", "fractions.Fraction"]
    assert f"All of them, if you trust the file:\n  {paste_all(unsafe)}\n" in out


def test_inspect_command(capsys: Any) -> None:
    code, out, _ = run(capsys, "inspect", FIXTURES / "g14_state_dict.pt", "--records")
    assert code == 0
    assert "fc.weight" in out
    assert "2x3" in out
    assert "data/6" in out
    code, out, _ = run(capsys, "inspect", FIXTURES / "r02_full_module.pt")
    assert code == 1
    assert "torch.nn.modules.linear.Linear" in out
    assert "_parameters.weight" in out
    assert "All of them" not in out  # there is one
    code, out, _ = run(capsys, "inspect", FIXTURES / "g11_small_view_big_storage.pt", "--json")
    assert code == 0
    assert json.loads(out)["rows"][0]["shape"] == [3]
    code, _, err = run(capsys, "inspect", FIXTURES / "h79_dup_record.pt")
    assert code == 1
    assert "two records are named" in err
    code, _, err = run(capsys, "inspect", FIXTURES / "none.pt")
    assert code == 2


@needs_safetensors
def test_safetensors_there_and_back(tmp_path: Path) -> None:
    from mortice.serialization.safetensors_files import DTYPES

    tensors = {}
    for name in DTYPES.values():
        dtype = getattr(mortice, name)
        raw = np.arange(32, dtype=np.uint8) % (2 if name == "bool" else 255)
        storage = mortice.from_numpy(raw).untyped_storage()
        from mortice._tensor.make import from_storage

        tensors[name] = from_storage(storage, dtype, (2, 16 // dtype.itemsize))
    path = tmp_path / "x.safetensors"
    serialization.save(tensors, path)
    loaded = serialization.load(path)
    assert set(loaded) == set(tensors)
    for name, t in tensors.items():
        assert loaded[name].dtype is t.dtype
        assert loaded[name].shape == t.shape
        assert loaded[name]._a.tobytes() == t._a.tobytes()
        loaded[name]._a[...] = 0


@needs_safetensors
def test_inspect_reads_safetensors_too(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "x.safetensors"
    serialization.save({"w": mortice.tensor([[1.0, 2.0]]), "n": mortice.tensor(3)}, path)
    found = serialization.inspect(path)
    assert found.format == "safetensors"
    assert {(row.name, row.dtype, row.shape, row.nbytes) for row in found.rows} == {
        ("w", "float32", (1, 2), 8),
        ("n", "int64", (), 8),
    }
    code, out, _ = run(capsys, "inspect", path)
    assert code == 0
    assert "float32" in out
    path.write_bytes(b"rubbish")
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        serialization.inspect(path)


@needs_safetensors
def test_convert_command(tmp_path: Path, capsys: Any) -> None:
    source, target, back = (tmp_path / name for name in ("a.pt", "b.safetensors", "c.pt"))
    serialization.save(
        {"epoch": 3, "model": {"w": mortice.tensor([[1.0, 2.0]]), "a.b": mortice.tensor(1)}}, source
    )
    code, _, err = run(capsys, "convert", source, target)
    assert code == 1
    assert "'epoch' is of type int" in err
    assert "--key" in err
    code, out, _ = run(capsys, "convert", source, target, "--key", "model")
    assert (code, out.split(": ")[1]) == (0, "2 tensors\n")
    code, out, _ = run(capsys, "convert", target, back)
    assert code == 0
    loaded = serialization.load(back)
    assert loaded["w"]._a.tolist() == [[1, 2]]
    code, _, err = run(capsys, "convert", target, back)
    assert code == 1
    assert "--force" in err
    code, _, err = run(capsys, "convert", target, tmp_path / "d.xyz")
    assert code == 1
    assert ".safetensors, .pt" in err
    assert not (tmp_path / "d.xyz").exists()
    code, _, _ = run(capsys, "convert", source, back, "--force", "--key", "model.a.b")
    assert code == 0
    assert serialization.load(back).item() == 1
    for key, message in (
        ("modle", "Did you mean 'model'"),
        ("epoch.x", "inside a value of type int"),
    ):
        code, _, err = run(capsys, "convert", source, back, "--force", "--key", key)
        assert code == 1
        assert message in err


@needs_safetensors
def test_what_safetensors_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    for obj, message in (
        ([1], "not a list"),
        ({1: mortice.tensor(1)}, "names for keys"),
        ({"x": 1}, "'x' is of type int"),
        ({"x": make.meta((2,), mortice.float32)}, "no data to write"),
        ({"x": mortice.tensor([1j]).to(mortice.complex128)}, "no counterpart"),
    ):
        with pytest.raises(InvalidValue, match=message):
            serialization.save(obj, path)
    assert not path.exists()
    path.write_bytes(b"\x10\0\0\0\0\0\0\0{rubbish")
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        serialization.load(path)


def test_without_the_library_it_says_what_to_install(monkeypatch: Any, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(Unavailable, match=r"pip install 'safetensors>=0.8'"):
        serialization.load(tmp_path / "x.safetensors")
