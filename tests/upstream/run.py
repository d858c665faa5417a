"""PyTorch's public tests of operators, dispatch, overrides and fake tensors, run against mortice.

    python tests/upstream/run.py --tests DIR        # DIR: a checkout's ``test`` folder, or UPSTREAM_TESTS
    python tests/upstream/run.py --tests DIR --file test_overrides.py -k Mode -v
    python tests/upstream/run.py --tests DIR --report    # also renew the table in README.md

The test files are PyTorch's and are not kept here. Each runs in a process of its own, in which
``torch`` is mortice (shim.py) and PyTorch's names in the file are ours (rename.py). A test passes
"by type" if it passes with the texts of errors and warnings left aside: ours are our own.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FILES = (
    "test_custom_ops.py",
    "test_python_dispatch.py",
    "test_overrides.py",
    "test_fake_tensor.py",
)
MARK = "<!-- table -->"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--tests", default=os.environ.get("UPSTREAM_TESTS", ""), help="folder of the test files")
    add("--file", action="append", help=f"of {', '.join(FILES)}; all if left away")
    add("-k", default="", help="only tests whose name contains this")
    add("-v", "--verbose", action="store_true", help="print each test that does not pass")
    add("--report", action="store_true", help="renew README.md")
    add("--timeout", type=float, default=900.0, help="seconds for one file")
    return parser.parse_args()


def run(file: Path, select: str, words: bool, timeout: float) -> list[dict[str, Any]]:
    """The results of one file's tests, in a child process."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "results.json"
        command = [
            sys.executable,
            str(HERE / "child.py"),
            str(file),
            str(out),
            select,
            str(int(words)),
        ]
        done = subprocess.run(command, timeout=timeout, check=False, capture_output=True, text=True)
        rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    if done.returncode:
        tail = (done.stderr.strip().splitlines() or ["no message"])[-1]
        rows.append({"test": "(the file itself)", "state": "failed", "why": f"stopped: {tail}"})
    return rows


def reason(row: dict[str, Any]) -> str:
    """Why a test does not pass, as one of the reasons in reasons.json, else its own first line."""
    table: dict[str, str] = json.loads((HERE / "reasons.json").read_text())
    text = f"{row['test']}: {row['why']}"
    for pattern, why in table.items():
        if re.search(pattern, text):
            return why
    return row["why"].replace("|", "\\|").replace("\n", " ")[:160]


def main() -> int:
    options = arguments()
    if not options.tests:
        print("upstream: say where PyTorch's test files are: --tests DIR, or UPSTREAM_TESTS")
        return 2
    files = options.file or list(FILES)
    lines = ["| file | pass | pass by type | do not | skipped |", "|---|---|---|---|---|"]
    rest: list[str] = []
    total: collections.Counter[str] = collections.Counter()
    for name in files:
        path = Path(options.tests) / name
        strict = {r["test"]: r for r in run(path, options.k, True, options.timeout)}
        loose = {r["test"]: r for r in run(path, options.k, False, options.timeout)}
        counts = collections.Counter(
            "pass" if r["state"] == "passed"
            else "skipped" if r["state"] == "skipped"
            else "by type" if loose.get(test, r)["state"] == "passed"
            else "not"
            for test, r in strict.items()
        )  # fmt: skip
        total.update(counts)
        ran = counts["pass"] + counts["by type"] + counts["not"]
        lines.append(
            f"| {name} | {counts['pass']} of {ran} | {counts['pass'] + counts['by type']} of {ran} | "
            f"{counts['not']} | {counts['skipped']} |"
        )
        failed = [r for t, r in loose.items() if r["state"] == "failed"]
        rest += [f"| {name}: {r['test']} | {reason(r)} |" for r in failed]
        if options.verbose:
            for r in failed:
                print(f"{name}: {r['test']}\n    {r['why'][:300]}")
    ran = total["pass"] + total["by type"] + total["not"]
    by_type = total["pass"] + total["by type"]
    lines.append(
        f"| all | {total['pass']} of {ran} | {by_type} of {ran} | {total['not']} | {total['skipped']} |"
    )
    print("\n".join(lines))
    if options.report:
        readme = HERE / "README.md"
        text = readme.read_text().partition(MARK)[0]
        table = ["| test | why it does not pass |", "|---|---|", *sorted(rest)]
        readme.write_text("\n".join([text + MARK, "", *lines, "", *table, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
