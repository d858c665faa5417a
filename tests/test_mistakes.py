"""docs/mistakes.md, executed: each mistake of its tables is made, and the message compared.

``python tests/test_mistakes.py --write`` puts the messages of today into the tables; read the
difference before committing it. In a message ``...`` stands for any text (paths, addresses).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import mistakes_site

import mortice

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "mistakes.md"
AT_LEAST = 40


class Mistake(NamedTuple):
    """One row: a Python snippet, or a command after ``$``; what is raised; the message."""

    line: int
    code: str
    kind: str
    message: str

    def fits(self, message: str) -> bool:
        """Whether a message is the row's, ``...`` standing for any text."""
        pattern = ".*?".join(re.escape(part) for part in self.message.split("..."))
        return re.fullmatch(pattern, message, re.DOTALL) is not None


def rows(text: str) -> list[Mistake]:
    found = []
    for number, line in enumerate(text.splitlines()):
        match = re.fullmatch(r"\| `(.+?)` \| (?:`(.*?)`)? ?\| (.*?) ?\|", line)
        if match:
            code, kind, message = (part or "" for part in match.groups())
            found.append(Mistake(number, code.replace(r"\|", "|"), kind, message))
    return found


def prelude(text: str) -> str:
    """The first Python block of the page."""
    return re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)


class Surroundings:
    """Folder, plug-ins and environment in which the mistakes are made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = folder / "site"
        self.site.mkdir()
        mistakes_site.make(self.site)
        self.environ = {
            "MORTICE_CACHE_DIR": str(folder / "cache"),
            "MORTICE_CONFIG_DIR": str(folder / "config"),
            "MORTICE_DISABLE_PLUGINS": "device:switchedoff",
            "NO_COLOR": "1",
        }

    def clean(self, message: str) -> str:
        for place in (str(self.folder), str(self.folder.resolve())):
            message = message.replace(place, "...")
        message = re.sub(r"0x[0-9a-f]{6,}", "...", message)
        message = re.sub(r"(/[\w.+-]+)+/(lib|site-packages|src)/", ".../", message)
        message = " ".join(message.split())
        return message.replace("|", r"\|")

    def make(self, code: str, before: str) -> tuple[str, str]:
        """(class, message) of what the mistake gives."""
        if code.startswith("$ "):
            return self.command(code[2:])
        names: dict[str, object] = {"__name__": "__main__", "tmp": str(self.folder)}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            exec(before, names)
            try:
                exec(code, names)
            except BaseException as error:
                public = (kind.__name__ for kind in type(error).__mro__)
                return next(n for n in public if n[0] != "_"), self.clean(str(error))
        if caught:
            return caught[-1].category.__name__, self.clean(str(caught[-1].message))
        return "", "nothing is raised"

    def command(self, line: str) -> tuple[str, str]:
        environ = {**os.environ, **self.environ}
        environ["PYTHONPATH"] = os.pathsep.join(
            [str(self.site), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        words = line.split()
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            environ[name] = value
        if words[0] == "mortice":
            words[0:1] = [sys.executable, "-m", "mortice"]
        elif words[0] == "python":
            words[0] = sys.executable
            words[2:] = [line.split("-c ", 1)[1].strip("'\"")]
        done = subprocess.run(
            words, env=environ, cwd=self.folder, capture_output=True, text=True, timeout=100,
            check=False,
        )  # fmt: skip
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()
        text = last[-1] if "Traceback" in done.stderr else " ".join(last)
        return f"exit {done.returncode}", self.clean(text)


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory):
    made = Surroundings(tmp_path_factory.mktemp("mistakes"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(made.site))
        for name, value in made.environ.items():
            patch.setenv(name, value)
        mortice.config.reload()  # another test may have read the environment already
        yield made
    mortice.config.reload()


TEXT = PAGE.read_text(encoding="utf-8")
ROWS = rows(TEXT)


def test_the_table_is_long_enough():
    assert len(ROWS) >= AT_LEAST
    assert len({row.code for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row.code[:60] for row in ROWS])
def test_mistake(row, surroundings):
    kind, message = surroundings.make(row.code, prelude(TEXT))
    assert kind == row.kind, f"{kind}: {message}"
    assert row.fits(message), f"{message!r}\nis not\n{row.message!r}"


def write() -> None:
    """Puts today's messages into the page."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        made = Surroundings(Path(folder))
        os.environ.update(made.environ)
        sys.path.insert(0, str(made.site))
        lines = TEXT.splitlines()
        for row in ROWS:
            try:
                kind, message = made.make(row.code, prelude(TEXT))
            except Exception:
                traceback.print_exc()
                continue
            if kind == row.kind and "..." in row.message and row.fits(message):
                continue
            code = row.code.replace("|", r"\|")
            lines[row.line] = f"| `{code}` | `{kind}` | {message} |"
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__" and "--write" in sys.argv:
    write()
