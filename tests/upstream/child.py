"""Runs one of PyTorch's test files against mortice; see run.py.

Arguments: the file, where to write results (a JSON object a line), a part of test names, and whether
the texts of errors count.
"""

from __future__ import annotations

import json
import sys
import traceback
import types
import unittest
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import absent
import rename
import shim
import testcase


def load(path: Path) -> types.ModuleType:
    """The test file as a module, its names renamed."""
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent))
    module.__dict__["mortice"] = sys.modules["torch"]  # as strings that are evaluated call it
    absent.importing[0] = True
    exec(compile(rename.source(path.read_text()), str(path), "exec"), module.__dict__)
    absent.importing[0] = False
    return module


def why(error: Any) -> str:
    kind, value, trace = error
    line = (str(value).strip().splitlines() or [""])[0]
    at = traceback.extract_tb(trace)
    ours = [f"{Path(f.filename).name}:{f.lineno}" for f in at if "mortice" in f.filename]
    theirs = [f"line {f.lineno}" for f in at if "upstream" not in f.filename][-1:]
    place = ", ".join([*theirs[:0], *ours[-1:]])
    return f"{kind.__name__}: {line}{f' [{place}]' if place else ''}"


class Result(unittest.TestResult):
    def __init__(self, out: Any) -> None:
        super().__init__()
        self.out = out

    def write(self, test: Any, state: str, text: str = "") -> None:
        name = test.id().partition(".")[2]
        self.out.write(json.dumps({"test": name, "state": state, "why": text}) + "\n")
        self.out.flush()

    def addSuccess(self, test: Any) -> None:
        self.write(test, "passed")

    def addSkip(self, test: Any, reason: str) -> None:
        self.write(test, "skipped", reason)

    def addError(self, test: Any, err: Any) -> None:
        self.write(test, "failed", why(err))

    addFailure = addError

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self.write(test, "passed")

    def addUnexpectedSuccess(self, test: Any) -> None:
        self.write(test, "failed", "passes, where PyTorch's does not")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self.write(test, "failed", why(err))


def main() -> None:
    path, out, select, words = sys.argv[1:5]
    testcase.settings["words"] = words == "1"
    warnings.simplefilter("ignore")
    shim.install()
    module = load(Path(path).resolve())
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    with open(out, "w") as file:
        result = Result(file)
        for group in suite:
            for test in group:
                if select in test.id():
                    test.run(result)


if __name__ == "__main__":
    main()
