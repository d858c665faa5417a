"""Files written here are PyTorch's, byte for byte, and are put in place in one step."""

from __future__ import annotations

import io
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_encoding import Encoder

from mortice import serialization
from mortice._tensor import make
from mortice._types import dtypes
from mortice.errors import InvalidState, InvalidValue
from mortice.serialization.pickler import Pickler
from mortice.serialization.tensors import TypedStorage

FIXTURES = Path(__file__).parent / "fixtures"

# Written by torch.save to a path with its defaults, so that the same must come out here.
BY_TORCH = [
    "g01_f32_2x3", "g02_scalar0d", "g04_dtypes_legacy", "g05_dtypes_v3", "g07_bf16",
    "g10_shared_views", "g11_small_view_big_storage", "g13_channels_last", "g14_state_dict",
    "g16_parameter_state", "g17_tensor_attrs", "g19_storages", "g22_sparse_csr", "g23_meta",
]  # fmt: skip


def tensor(array: Any) -> Any:
    return make.wrap_array(np.asarray(array))


def again(obj: Any, **arguments: Any) -> Any:
    buffer = io.BytesIO()
    serialization.save(obj, buffer)
    buffer.seek(0)
    return serialization.load(buffer, **arguments)


def records(path: Any) -> list[tuple[str, int, bytes]]:
    with zipfile.ZipFile(path) as archive:
        return [
            (info.filename, info.header_offset, archive.read(info)) for info in archive.infolist()
        ]


@pytest.mark.parametrize("name", BY_TORCH)
def test_the_same_data_gives_the_file_that_torch_wrote(name: str, tmp_path: Path) -> None:
    original = FIXTURES / f"{name}.pt"
    written = tmp_path / f"{name}.pt"
    serialization.save(serialization.load(original), written)
    ours, theirs = records(written), records(original)
    if name == "g16_parameter_state" and not _has_parameters():
        return
    # The last record identifies the contents, by a hash that is each writer's own.
    assert ours[:-1] == theirs[:-1]
    assert ours[-1][:2] == theirs[-1][:2]
    assert len(ours[-1][2]) == len(theirs[-1][2]) == 40
    assert _blank(written) == _blank(original)


def _has_parameters() -> bool:
    from mortice.serialization.tensors import parameter_class

    return parameter_class() is not None


def _blank(path: Path) -> bytes:
    """The file without its identity and the two copies of that record's checksum."""
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        info = archive.infolist()[-1]
    identity = archive_data_offset(data, info)
    data[identity : identity + 40] = bytes(40)
    return bytes(data).replace(info.CRC.to_bytes(4, "little"), bytes(4))


def archive_data_offset(data: bytearray, info: zipfile.ZipInfo) -> int:
    at = info.header_offset
    name, extra = (int.from_bytes(data[at + i : at + i + 2], "little") for i in (26, 28))
    return at + 30 + name + extra


def test_equal_data_gives_equal_files(tmp_path: Path) -> None:
    first, second = tmp_path / "a.pt", tmp_path / "b" / "a.pt"
    second.parent.mkdir()
    for path in (first, second):
        serialization.save({"w": tensor([1.0, 2.0])}, path)
    assert first.read_bytes() == second.read_bytes()


def test_a_buffer_gets_the_folder_archive() -> None:
    buffer = io.BytesIO()
    serialization.save(tensor(np.arange(3, dtype=np.float32)), buffer)
    assert buffer.getvalue()[:60] == (FIXTURES / "g34_from_buffer.pt").read_bytes()[:60]


@pytest.mark.parametrize("name", sorted(dtypes.ALL))
def test_every_dtype_survives(name: str) -> None:
    dtype = dtypes.ALL[name]
    raw = np.arange(48, dtype=np.uint8)
    if name == "bool":
        raw = raw % 2
    from mortice._tensor.storage import host_storage

    if name not in serialization.formats.DTYPES:
        with pytest.raises(InvalidValue, match="cannot be saved"):
            again(make.from_storage(host_storage(raw), dtype, (3,)))
        return
    t = make.from_storage(host_storage(raw), dtype, (3,), offset=0)
    loaded = again(t)
    assert loaded.dtype is dtype
    assert loaded.shape == (3,)
    assert loaded.untyped_storage().bytes().tobytes() == raw.tobytes()


def test_views_share_after_loading() -> None:
    base = tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    row = make.view_of(base, base._a[1])
    loaded = again({"base": base, "row": row, "same": base})
    assert loaded["same"] is loaded["base"]
    assert loaded["row"].untyped_storage() is loaded["base"].untyped_storage()
    assert loaded["row"].storage_offset() == 4
    loaded["base"]._a[1, 0] = 100
    assert loaded["row"]._a[0] == 100


def test_python_values_survive() -> None:
    values = {
        "none": None, "bools": [True, False], "ints": [0, 255, 256, 65535, 65536, -1, -129],
        "long": [2**31, -(2**31), -(2**31) - 1, 2**63, 2**200, -(2**200), -128, 127],
        "floats": [0.0, -0.0, 1e300, float("inf")], "text": ["", "é世😀", "\ud800"],
        "bytes": [b"", b"\x00\xff"], "bytearray": [bytearray(), bytearray(b"ab")],
        "set": {1, 2}, "frozen": frozenset((3,)), "complex": 1 - 2j,
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        "counter": Counter("aab"), "ordered": OrderedDict([("b", 1), ("a", 2)]),
        (1, "key"): "tuple key", 5: "int key", None: "none key", 2.5: "float key",
    }  # fmt: skip
    assert again(values) == values


def test_long_containers_are_written_in_batches() -> None:
    values = {
        "list": list(range(2001)), "dict": {i: i for i in range(2001)},
        "ordered": OrderedDict((i, i) for i in range(2001)), "exact": list(range(1000)),
    }  # fmt: skip
    assert again(values) == values


@pytest.mark.parametrize("length", [0, 1, 2, 3, 999, 1000, 1001, 2000, 2001])
def test_plain_data_gives_the_bytes_of_the_standard_pickler(length: int) -> None:
    import pickle

    text = [f"text {i}" for i in range(length)]
    data = {
        "list": text, "tuple": tuple(text[:5]), "dict": dict(zip(text, text, strict=True)),
        "same": text, "ints": [2**i - 1 for i in range(length)][:300],
        "ordered": OrderedDict(zip(text, range(length), strict=True)),
        "negative": [-(2**i) for i in range(min(length, 300))],
        "set": set(range(min(length, 4))), "complex": 1j, "counter": Counter(text[:3]),
    }  # fmt: skip
    assert Pickler(lambda obj: None).dump(data) == pickle.dumps(data, 2)


def test_one_storage_under_two_dtypes_is_refused() -> None:
    t = tensor(np.arange(4, dtype=np.float32))
    other = make.from_storage(t.untyped_storage(), dtypes.ALL["int32"], (4,))
    with pytest.raises(InvalidState, match=r"float32 and as int32.*clone"):
        again([t, other])


def test_storages_alone_share_with_tensors() -> None:
    t = tensor(np.arange(4, dtype=np.float32))
    typed = TypedStorage(t.untyped_storage(), t.dtype)
    loaded = again([t, typed])
    assert isinstance(loaded[1], TypedStorage)
    assert loaded[1].untyped() is loaded[0].untyped_storage()
    assert loaded[1].tensor()._a.tolist() == [0, 1, 2, 3]


def test_a_requires_grad_tensor_and_attributes_survive() -> None:
    t = tensor([1.0, 2.0]).requires_grad_(True)
    t.note = {"k": [1, 2]}
    loaded = again(t)
    assert loaded.requires_grad
    assert loaded.note == {"k": [1, 2]}


def test_a_noncontiguous_view_keeps_its_strides() -> None:
    base = tensor(np.arange(24, dtype=np.int64).reshape(2, 3, 4))
    view = make.view_of(base, base._a.transpose(2, 0, 1)[1:, :, ::2])
    loaded = again(view)
    assert loaded.stride() == view.stride() == (1, 12, 8)
    assert loaded.storage_offset() == 1
    assert loaded._a.tolist() == view._a.tolist()


def test_zero_sizes_and_zero_strides() -> None:
    empty = tensor(np.empty((0, 3), np.float32))
    one = tensor(np.ones(1, np.float32))
    wide = make.view_of(one, np.broadcast_to(one._a, (5, 1)))
    loaded = again([empty, wide])
    assert loaded[0].shape == (0, 3)
    assert loaded[1].shape == (5, 1)
    assert loaded[1].stride()[0] == 0
    assert loaded[1].untyped_storage().nbytes() == 4


@pytest.mark.parametrize("name", ["g22_sparse_csr.pt", "g28_legacy.pt", "g29_legacy_shared.pt"])
def test_what_is_loaded_saves_and_loads_again(name: str) -> None:
    loaded = serialization.load(FIXTURES / name)
    assert Encoder().encode(again(loaded)) == Encoder().encode(loaded)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pickle_protocol": 4}, "protocol 2, not 4"),
        ({"_use_new_zipfile_serialization": False}, "legacy format is read, but not written"),
        ({"pickle_module": io}, "no use here"),
    ],
)
def test_arguments_that_do_not_fit(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        serialization.save(1, io.BytesIO(), **arguments)


def test_what_cannot_be_saved_says_so_before_a_file_is_touched(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(b"old")

    class Local:
        pass

    for obj in (lambda: 0, Local, Local(), 1 << 3000, (i for i in ())):
        with pytest.raises(InvalidValue):
            serialization.save({"x": obj}, path)
    with pytest.raises(InvalidValue, match="folder"):
        serialization.save(1, tmp_path)
    with pytest.raises(InvalidValue, match="path or a file object"):
        serialization.save(1, 5)
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(InvalidValue, match="nested too deeply"):
        serialization.save(nested, path)
    while nested:
        nested = nested[0]
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["model.pt"]


def test_a_failing_write_leaves_the_old_file(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "model.pt"
    serialization.save({"w": tensor([1.0])}, path)
    before = path.read_bytes()

    def broken(self: Any, data: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mortice.serialization.writer.ZipWriter._write", broken)
    with pytest.raises(OSError, match="No space"):
        serialization.save({"w": tensor([2.0])}, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.pt"]


def test_mode_and_links_of_the_old_file_stay(tmp_path: Path) -> None:
    import os
    import sys

    if sys.platform == "win32":
        return
    real = tmp_path / "real.pt"
    link = tmp_path / "link.pt"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    serialization.save({"w": 1}, link, durable=True)
    assert link.is_symlink()
    assert serialization.load(real) == {"w": 1}
    assert os.stat(real).st_mode & 0o777 == 0o640


def test_leavings_of_killed_writers_are_swept(tmp_path: Path) -> None:
    import os

    path = tmp_path / "model.pt"
    stale = tmp_path / ".model.pt.1-2-3.mortice-tmp"
    fresh = tmp_path / ".model.pt.4-5-6.mortice-tmp"
    other = tmp_path / ".other.pt.1-2-3.mortice-tmp"
    for leaving in (stale, fresh, other):
        leaving.write_bytes(b"half")
    os.utime(stale, (0, 0))
    os.utime(other, (0, 0))
    serialization.save(1, path)
    assert not stale.exists()
    assert fresh.exists()
    assert other.exists()


def test_skip_data_leaves_holes() -> None:
    t = tensor(np.arange(4, dtype=np.float32))
    buffer = io.BytesIO()
    with serialization.skip_data():
        serialization.save({"w": t}, buffer)
    assert serialization.load(io.BytesIO(buffer.getvalue()))["w"]._a.tolist() == [0] * 4
    full = io.BytesIO()
    serialization.save({"w": t}, full)
    full.seek(0)
    with serialization.skip_data():
        assert serialization.load(full)["w"]._a.tolist() == [0] * 4
    full.seek(0)
    assert serialization.load(full)["w"]._a.tolist() == [0, 1, 2, 3]


def test_checksums_can_be_left_out() -> None:
    serialization.set_crc32_options(False)
    try:
        assert not serialization.get_crc32_options()
        buffer = io.BytesIO()
        serialization.save({"w": tensor([1.0])}, buffer)
    finally:
        serialization.set_crc32_options(True)
    with zipfile.ZipFile(buffer) as archive:
        assert {info.CRC for info in archive.infolist()} == {0}
    buffer.seek(0)
    assert serialization.load(buffer)["w"]._a.tolist() == [1.0]
