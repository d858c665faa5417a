"""Long fuzzing of the checkpoint reader, in child processes with bounded memory.

    python tests/fuzz/checkpoints.py [--inputs N] [--seed S] [--jobs J] [--minutes M]

Each input is loaded in a child that may use 1 GiB of memory. An input that crashes it, takes over a
second, or ends in any error but ours is written to tests/fuzz/found/ and the run fails. Prints the
counts; the same seed gives the same inputs.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
HELPERS = HERE.parent.parent / "packages" / "core" / "tests" / "serialization"
FOUND = HERE / "found"
MEMORY = 1 << 30
BATCH = 2000

sys.path.insert(0, str(HELPERS))


def child(seed: int, count: int) -> None:
    """Load ``count`` inputs from ``seed``; report by a line, leave what fails in a file."""
    import io
    import resource

    from mutations import legacy, mutate, seeds
    from outcome import outcome

    from mortice import serialization
    from mortice.errors import CheckpointError

    faulthandler.enable()
    files = seeds()
    names = sorted(files)
    # Beyond what the interpreter and numpy have mapped already.
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, resource.RLIM_INFINITY))
    signal.signal(signal.SIGPROF, _too_long)
    for data in files.values():  # imports what loading imports, before anything is timed
        with contextlib.suppress(CheckpointError):
            serialization.load(io.BytesIO(data))
    counts = {"loaded": 0, "refused": 0}
    rng = random.Random(seed)
    scratch = FOUND / f"running-{os.getpid()}"
    for number in range(count):
        name = rng.choice(names)
        data = legacy(rng) if rng.random() < 0.05 else mutate(files[name], rng)
        scratch.write_bytes(data)
        signal.setitimer(signal.ITIMER_PROF, 5)  # of this process: a busy machine is no hang
        try:
            arguments = {"map_location": "meta"} if rng.random() < 0.1 else {}
            counts[outcome(data, **arguments)] += 1
        except BaseException:
            kept = FOUND / f"{seed}-{number}-{name}"
            scratch.rename(kept)
            print(f"FOUND {kept}\n{traceback.format_exc()}", flush=True)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    scratch.unlink(missing_ok=True)
    print(f"COUNTS {counts['loaded']} {counts['refused']}", flush=True)


def _too_long(*arguments: object) -> None:
    raise TimeoutError("over five seconds")


def parent(inputs: int, seed: int, jobs: int, minutes: float) -> int:
    """Run batches until there were ``inputs`` of them, or time is up."""
    FOUND.mkdir(exist_ok=True)
    end = time.monotonic() + minutes * 60
    running: dict[int, tuple[subprocess.Popen[str], int]] = {}
    loaded = refused = failed = started = 0
    begun = time.monotonic()
    while started < inputs or running:
        while len(running) < jobs and started < inputs and time.monotonic() < end:
            command = [sys.executable, __file__, "--child", str(seed + started), str(BATCH)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            running[process.pid] = (process, seed + started)
            started += BATCH
        if not running:
            break
        process, batch = running.pop(next(iter(running)))
        out, _ = process.communicate()
        for line in out.splitlines():
            if line.startswith("COUNTS"):
                _, more, less = line.split()
                loaded, refused = loaded + int(more), refused + int(less)
        if "FOUND" in out or process.returncode:
            failed += 1
            print(f"batch {batch} ended with {process.returncode}\n{out}", flush=True)
    seconds = time.monotonic() - begun
    print(
        f"{loaded + refused} inputs in {seconds:.0f} s: {loaded} loaded, {refused} refused, "
        f"{failed} batches with a finding"
    )
    return 1 if failed else 0


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        child(int(sys.argv[2]), int(sys.argv[3]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--inputs", type=int, default=500_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60)
    given = parser.parse_args()
    return parent(given.inputs, given.seed, given.jobs, given.minutes)


if __name__ == "__main__":
    raise SystemExit(main())
