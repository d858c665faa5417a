"""Coverage-guided fuzzing of the checkpoint reader with atheris (Linux, Python 3.11 to 3.13).

    pip install 'atheris>=3'
    python tests/fuzz/atheris_checkpoints.py [libFuzzer's options, such as -runs=500000] [CORPUS]

Half of the inputs are whole files; the other half is a pickle, put into a container that is right, so
that checksums do not keep the fuzzer out. Started without a corpus it begins from the fixtures.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

HELPERS = Path(__file__).resolve().parents[2] / "packages" / "core" / "tests" / "serialization"
sys.path.insert(0, str(HELPERS))

with atheris.instrument_imports(include=["mortice.serialization"]):
    from mortice import serialization  # noqa: F401  to be instrumented

from builder import Entry, Zip
from mutations import seeds
from outcome import outcome

_PICKLE, _FILE = 0, 1
_DATA = bytes(range(48))


def one_input(data: bytes) -> None:
    """Load what the first byte says that the others are."""
    if not data:
        return
    body = data[1:]
    if data[0] % 2 == _FILE:
        outcome(body)
        return
    parts = [
        Entry("archive/data.pkl", body),
        Entry("archive/byteorder", b"big" if data[0] & 2 else b"little"),
        *(Entry(f"archive/data/{key}", _DATA[:size]) for key, size in enumerate((24, 8, 48))),
        Entry("archive/version", b"3\n"),
    ]
    outcome(Zip(*parts).build())


def write_corpus(folder: Path) -> None:
    """The fixtures, and the pickles inside them."""
    import io
    import zipfile

    for name, data in seeds().items():
        (folder / name).write_bytes(bytes((_FILE,)) + data)
        if zipfile.is_zipfile(io.BytesIO(data)):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for inner in archive.namelist():
                    if inner.endswith("data.pkl"):
                        content = bytes((_PICKLE,)) + archive.read(inner)
                        (folder / f"{name}.pickle").write_bytes(content)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        arguments = list(sys.argv)
        if all(argument.startswith("-") for argument in arguments[1:]):
            write_corpus(Path(folder))
            arguments.append(folder)
        if not any(argument.startswith("-rss_limit_mb") for argument in arguments):
            arguments.append("-rss_limit_mb=1500")
        atheris.Setup(arguments, one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
