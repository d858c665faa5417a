"""Where loaded storages go, how they are read, and what the options change."""

from __future__ import annotations

import io
import mmap
import os
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builder import (
    FLOAT,
    HOOKS,
    Entry,
    Zip,
    call,
    dims,
    entries,
    group,
    storage,
    tensor,
    text,
    whole,
)

import mortice
from mortice import serialization
from mortice._tensor import make
from mortice._tensor.storage import Storage
from mortice._types.device import CPU
from mortice.errors import CheckpointError, InvalidValue
from mortice.serialization import tags
from mortice.serialization.storage_reader import StorageReader

FIXTURES = Path(__file__).parent / "fixtures"
BIG = FIXTURES / "g10_shared_views.pt"


def saved(path: Path, **tensors: Any) -> Path:
    serialization.save({name: mortice.tensor(value) for name, value in tensors.items()}, path)
    return path


def at(location: str) -> io.BytesIO:
    body = tensor(data=storage(where=text(location)))
    return io.BytesIO(Zip(*entries(body)).build())


# -- map_location --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "map_location",
    [
        "cpu", b"cpu", mortice.device("cpu"), {"npu9:0": "cpu"}, {"npu9:0": "cpu", "cuda:0": "npu9"},
        lambda storage, location: storage,
    ],
)  # fmt: skip
def test_every_form_of_map_location(map_location: Any) -> None:
    loaded = serialization.load(at("npu9:0"), map_location)
    assert loaded.device is CPU
    assert loaded._a.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("map_location", [None, {}, {"npu8:0": "cpu"}, lambda s, where: None])
def test_a_location_that_nobody_knows(map_location: Any) -> None:
    with pytest.raises(CheckpointError, match=r"'npu9:0', which is not here.*map_location='cpu'"):
        serialization.load(at("npu9:0"), map_location)


def test_mapping_to_a_device_that_is_not_here() -> None:
    with pytest.raises(mortice.errors.DeviceError):
        serialization.load(at("cpu"), "npu9:0")
    with pytest.raises(CheckpointError, match="npu9:0"):
        serialization.load(at("cpu"), {"cpu": "npu9:0"})
    with pytest.raises(InvalidValue, match="map_location is None, a device"):
        serialization.load(at("cpu"), 5)


def test_meta_reads_no_data(monkeypatch: Any) -> None:
    def read(*arguments: Any) -> None:
        raise AssertionError("data was read")

    monkeypatch.setattr(StorageReader, "read", read)
    for map_location in ("meta", {"cpu": "meta"}):
        loaded = serialization.load(BIG, map_location)
        assert loaded["row1"].is_meta
        assert loaded["row1"].storage_offset() == 4
        assert loaded["row1"].untyped_storage() is loaded["base"].untyped_storage()


def test_a_function_sees_every_storage_once_with_its_location() -> None:
    seen: list[tuple[type, str]] = []

    def place(storage: Any, location: str) -> Any:
        seen.append((type(storage), location))
        return storage

    serialization.load(BIG, place)
    assert seen == [(Storage, "cpu")]


# -- tags ----------------------------------------------------------------------------------------


@pytest.fixture
def registry(monkeypatch: Any) -> Any:
    monkeypatch.setattr(tags, "_registry", list(tags._registry))
    monkeypatch.setattr(tags, "_plugins", {})


def test_registrations_of_one_priority_are_asked_in_order(registry: Any) -> None:
    asked: list[str] = []

    def taker(name: str, takes: bool) -> Any:
        def restore(storage: Any, location: str) -> Any:
            asked.append(name)
            return storage if takes and location.startswith("npu9") else None

        return restore

    def no_tag(storage: Any) -> None:
        return None

    serialization.register_package(30, no_tag, taker("third", True))
    serialization.register_package(20, no_tag, taker("first", False))
    serialization.register_package(20, no_tag, taker("second", True))
    assert serialization.load(at("npu9:0")).shape == (2, 3)
    assert asked[:2] == ["first", "second"]
    assert "third" not in asked
    with pytest.raises(InvalidValue, match="whole number"):
        serialization.register_package(1.5, no_tag, no_tag)  # type: ignore[arg-type]


def test_a_tagger_names_the_location_that_is_written(registry: Any) -> None:
    serialization.register_package(5, lambda storage: "npu9:3", lambda storage, location: None)
    buffer = io.BytesIO()
    serialization.save(mortice.tensor([1.0]), buffer)
    buffer.seek(0)
    assert serialization.inspect(buffer).rows[0].location == "npu9:3"


def test_a_plugin_is_loaded_for_its_tag_only_after_validation(registry: Any) -> None:
    made: list[str] = []

    class Tag:
        def __init__(self) -> None:
            made.append("tag")

        def tag(self, storage: Any) -> None:
            return None

        def restore(self, storage: Any, location: str) -> Any:
            return storage

    mortice.plugins.register("serialization", "npu9", Tag)
    try:
        bad = tensor(dims(9), dims(1), data=storage(where=text("npu9:0")))
        with pytest.raises(CheckpointError, match="reaches byte"):
            serialization.load(io.BytesIO(Zip(*entries(bad)).build()))
        assert made == []
        assert serialization.load(at("npu9:0")).shape == (2, 3)
        assert made == ["tag"]
    finally:
        mortice.plugins.unregister("serialization", "npu9")


def test_a_broken_plugin_is_named_and_can_be_avoided(registry: Any) -> None:
    mortice.plugins.register("serialization", "npu9", "no_such_module_anywhere:Tag")
    try:
        with pytest.raises(CheckpointError, match=r"npu9.*no_such_module.*map_location='cpu'"):
            serialization.load(at("npu9:0"))
        assert serialization.load(at("npu9:0"), "cpu").shape == (2, 3)
    finally:
        mortice.plugins.unregister("serialization", "npu9")


def test_location_tags_of_the_built_in_devices() -> None:
    assert serialization.location_tag(mortice.tensor([1.0]).untyped_storage()) == "cpu"
    meta = make.meta((2,), mortice.float32).untyped_storage()
    assert serialization.location_tag(meta) == "meta"


# -- mmap ----------------------------------------------------------------------------------------


def test_mapped_tensors_are_the_file_and_private(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.pt", w=[1.0, 2.0, 3.0])
    before = path.read_bytes()
    loaded = serialization.load(path, mmap=True)["w"]
    assert isinstance(_root(loaded._a), mmap.mmap)
    loaded._a[0] = 7
    assert loaded._a.tolist() == [7, 2, 3]
    assert path.read_bytes() == before


def _root(array: Any) -> Any:
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flags for mappings")
def test_shared_mappings_write_to_the_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.pt", w=[1.0, 2.0, 3.0])
    with serialization.set_default_mmap_options(mmap.MAP_SHARED):
        assert serialization.get_default_mmap_options() == mmap.MAP_SHARED
        serialization.load(path, mmap=True)["w"]._a[0] = 7
    assert serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    assert serialization.load(path, verify=False)["w"]._a.tolist() == [7, 2, 3]
    with pytest.raises(InvalidValue, match="MAP_PRIVATE"):
        serialization.set_default_mmap_options(12345)


def test_mapping_a_gibibyte_takes_no_memory(tmp_path: Path) -> None:
    if sys.platform != "linux":
        return
    path = tmp_path / "big.pt"
    serialization.save(mortice.from_numpy(np.zeros(1 << 20, np.float32)), path)

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE

    before = resident()
    loaded = [serialization.load(path, mmap=True) for _ in range(64)]
    assert resident() - before < 16 << 20
    assert all(t.shape == (1 << 20,) for t in loaded)


def test_mmap_needs_a_path_and_the_zip_format(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="needs a path"):
        serialization.load(at("cpu"), mmap=True)
    with pytest.raises(CheckpointError, match=r"legacy format.*save it again"):
        serialization.load(FIXTURES / "g28_legacy.pt", mmap=True)


def test_compressed_and_misaligned_storages_are_read_under_mmap(tmp_path: Path) -> None:
    for shift, method in ((1, 0), (0, 8)):
        parts = entries(tensor())
        parts[2] = Entry("archive/data/0", parts[2].payload, method)
        parts[2].local_extra = b"xy" + struct.pack("<H", shift) + bytes(shift)
        path = tmp_path / f"{shift}.pt"
        path.write_bytes(Zip(*parts).build())
        loaded = serialization.load(path, mmap=True)
        assert loaded._a.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert loaded._a.flags.aligned


# -- byte order ------------------------------------------------------------------------------------


def big_endian(body: bytes, data: bytes) -> io.BytesIO:
    parts = entries(body, {"0": data})
    parts[1] = Entry("archive/byteorder", b"big")
    return io.BytesIO(Zip(*parts).build())


def test_big_endian_files_are_swapped(tmp_path: Path) -> None:
    file = big_endian(tensor(), struct.pack(">6f", *range(6)))
    assert serialization.load(file)._a.tolist() == [[0, 1, 2], [3, 4, 5]]
    path = tmp_path / "big.pt"
    path.write_bytes(file.getvalue())
    assert serialization.load(path, mmap=True)._a.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert path.read_bytes() == file.getvalue()


def test_big_endian_complex_is_swapped_by_its_parts() -> None:
    body = tensor(dims(2), dims(1), data=storage(numel=2, cls=b"ctorch\nComplexFloatStorage\n"))
    file = big_endian(body, struct.pack(">4f", 1, 2, 3, 4))
    assert serialization.load(file)._a.tolist() == [1 + 2j, 3 + 4j]


UNTYPED = b"ctorch.storage\nUntypedStorage\n"


def untyped(dtype: str, count: int, nbytes: int) -> bytes:
    return call(
        "torch._utils _rebuild_tensor_v3",
        storage(numel=nbytes, cls=UNTYPED), whole(0), dims(count), dims(1), b"\x89", HOOKS,
        f"ctorch\n{dtype}\n".encode(),
    )  # fmt: skip


def test_big_endian_untyped_storages_are_swapped_by_their_tensors() -> None:
    data = struct.pack(">3H", 1, 2, 3)
    assert serialization.load(big_endian(untyped("uint16", 3, 6), data))._a.tolist() == [1, 2, 3]
    both = group(untyped("uint16", 4, 8), untyped("uint32", 2, 8))
    with pytest.raises(CheckpointError, match="elements of several sizes"):
        serialization.load(big_endian(both, bytes(8)))
    # In our own order there is no question.
    assert len(serialization.load(io.BytesIO(Zip(*entries(both, {"0": bytes(8)})).build()))) == 2


def test_the_order_of_files_that_do_not_say(tmp_path: Path) -> None:
    parts = entries(tensor(), {"0": struct.pack(">6f", *range(6))})
    del parts[1]
    data = Zip(*parts).build()
    assert serialization.get_default_load_endianness() is None
    serialization.set_default_load_endianness(serialization.LoadEndianness.BIG)
    try:
        assert serialization.load(io.BytesIO(data))._a.tolist() == [[0, 1, 2], [3, 4, 5]]
        serialization.set_default_load_endianness(serialization.LoadEndianness.NATIVE)
        swapped = serialization.load(io.BytesIO(data))._a.tolist()
        assert (swapped == [[0, 1, 2], [3, 4, 5]]) == (sys.byteorder == "big")
    finally:
        serialization.set_default_load_endianness(None)
    with pytest.raises(InvalidValue, match="LoadEndianness"):
        serialization.set_default_load_endianness("big")  # type: ignore[arg-type]


# -- arguments -------------------------------------------------------------------------------------


def test_arguments_that_do_not_fit() -> None:
    import pickle

    with pytest.raises(InvalidValue, match="pickle_module goes with weights_only=False"):
        serialization.load(BIG, pickle_module=pickle, weights_only=True)
    with pytest.raises(InvalidValue, match="asked for by name"):
        serialization.load(BIG, pickle_module=pickle)
    with pytest.raises(InvalidValue, match="unknown argument 'encodign'"):
        serialization.load(BIG, encodign="x")


def test_mortice_save_and_load_are_these() -> None:
    assert mortice.save is serialization.save
    assert mortice.load is serialization.load


def test_nothing_of_it_is_imported_before_it_is_used() -> None:
    import subprocess

    code = "import sys, mortice; print([m for m in sys.modules if 'serialization' in m])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert out.stdout.strip() == "[]"


def test_a_storage_keyed_by_letters() -> None:
    body = tensor(data=storage("weights_1", 6, FLOAT))
    loaded = serialization.load(
        io.BytesIO(Zip(*entries(body, {"weights_1": struct.pack("<6f", *range(6))})).build())
    )
    assert loaded.shape == (2, 3)
