"""A file is replaced in one step, whenever the writer dies."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mortice
from mortice import serialization
from mortice.serialization import writer

NOBODY = 65534  # the user without rights, by custom


@pytest.mark.timeout(600)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked writers")
def test_killed_at_any_moment_the_file_is_whole(tmp_path: Path) -> None:
    script = Path(__file__).parent / "kill_saves.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), "300"],
        capture_output=True, text=True, timeout=590, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("300 kills")


def test_sizes_and_offsets_in_64_bits(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(writer, "_LARGE", 100)
    path = tmp_path / "large.pt"
    values = np.arange(1000, dtype=np.float32)
    serialization.save({"w": mortice.from_numpy(values), "b": mortice.tensor([1])}, path)
    loaded = serialization.load(path)
    assert loaded["w"].numpy().tolist() == values.tolist()
    assert loaded["b"].item() == 1
    assert serialization.load(path, mmap=True)["w"].numpy().tolist() == values.tolist()
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        sizes = [info.file_size for info in archive.infolist()]
    assert 4000 in sizes


def test_many_records(tmp_path: Path) -> None:
    # More than 65,535: the count too is written in 64 bits then.
    path = tmp_path / "many.pt"
    with writer.replacing(str(path)) as file:
        out = writer.ZipWriter(file, "many")
        out.add("data.pkl", b"\x80\x02N.")
        out.add("version", b"3\n")
        for index in range(66_000):
            out.add(f"data/{index}", b"")
        out.finish()
    assert serialization.load(path) is None
    assert len(serialization.inspect(path).records) == 66_003


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="needs a device file")
def test_what_is_no_regular_file_is_written_as_it_is() -> None:
    serialization.save({"w": mortice.tensor([1.0])}, "/dev/null")
    assert not os.path.isfile("/dev/null")


@contextlib.contextmanager
def no_longer_root() -> Iterator[int]:
    """Run as somebody whom permissions bind; root may write anywhere."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield os.geteuid()
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.skipif(sys.platform == "win32", reason="folders have no write permission there")
def test_a_folder_that_takes_no_new_file(tmp_path: Path) -> None:
    serialization.save(1, tmp_path / "first.pt")  # imports all it needs while that is allowed
    # Not in tmp_path, whose parents only their owner may enter.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.pt")
        path.write_bytes(b"old")
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, -1)
        os.chmod(folder, 0o500)
        with no_longer_root() as user:
            assert user != 0
            with pytest.raises(mortice.errors.InvalidState, match="Save to another folder"):
                serialization.save(1, path)
        os.chmod(folder, 0o700)
        assert path.read_bytes() == b"old"
        assert os.listdir(folder) == ["model.pt"]


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be removed there")
def test_a_writer_at_work_is_not_swept(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    with writer.replacing(str(path)) as file:
        file.write(b"part")
        file.flush()
        os.utime(file.name, (0, 0))
        serialization.save(1, path)
        assert os.path.exists(file.name)
        file.write(b" and the rest")
    assert path.read_bytes() == b"part and the rest"
