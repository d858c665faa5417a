"""Saves over one file again and again in children that are killed at any moment.

    python kill_saves.py FOLDER KILLS

After each kill the file must be a whole one: the old or the new. Prints how many of each there were.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

import mortice


def values(number: int) -> np.ndarray:
    return np.full(200_000, number, np.float32)


def save_for_ever(path: Path, number: int, ready: int) -> None:
    os.write(ready, b".")
    while True:
        number += 1
        mortice.save({"number": number, "w": mortice.from_numpy(values(number))}, path)


def main(folder: Path, kills: int) -> None:
    path = folder / "model.pt"
    begun = time.perf_counter()
    for _ in range(10):
        mortice.save({"number": 0, "w": mortice.from_numpy(values(0))}, path)
    one_save = (time.perf_counter() - begun) / 10
    random.seed(0)
    before, unchanged = 0, 0
    for _ in range(kills):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            save_for_ever(path, before, writer)
        os.read(reader, 1)
        time.sleep(random.random() * 4 * one_save)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)
        loaded = mortice.load(path)
        number = loaded["number"]
        assert number >= before, "an older file came back"
        assert (loaded["w"].numpy() == values(number)).all(), "the file is a mixture"
        unchanged += number == before
        before = number
    leavings = sum(name.endswith(".mortice-tmp") for name in os.listdir(folder))
    print(f"{kills} kills, {unchanged} left the old file, {leavings} were in the middle of a save")
    assert leavings > kills // 20, "too few kills fell into a save to show anything"
    for name in os.listdir(folder):
        if name.endswith(".mortice-tmp"):
            os.utime(folder / name, (0, 0))
    mortice.save(1, path)
    assert os.listdir(folder) == ["model.pt"], "leavings of killed writers were not swept"


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
