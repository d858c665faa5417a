"""``mortice explain SCRIPT``: the page and the text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from mortice._capture.observer import decode as observer

REPLAYS = observer.support() is None
SCRIPT = """
    import sys
    import mortice

    scale = 3.0

    @mortice.compile(backend="aot_eager")
    def train(x, w):
        return (x @ w * scale).tanh().sum()

    @mortice.compile(backend="eager")
    def branch(x, log):
        log.append(1)
        return x.sin() if x.sum() > 0 else x.cos()

    w = mortice.ones(3, 2, requires_grad=True)
    for n in (4, 4, 4):
        train(mortice.ones(n, 3), w).backward()
    for x in (1.0, -1.0):
        branch(mortice.full((3,), x), [])
    print("<printed>", sys.argv[1:])
    if "fail" in sys.argv:
        raise SystemExit(7)
"""


@pytest.fixture
def script(site: Any) -> str:
    import textwrap

    (site.cwd / "prog.py").write_text(textwrap.dedent(SCRIPT))
    return "prog.py"


class Checker(HTMLParser):
    """Every element that is opened is closed, in order, and nothing is fetched."""

    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.count: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        assert not any(name in ("src", "srcset") for name, _ in attrs)
        assert all(value.startswith("#") for name, value in attrs if name == "href")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page(site: Any, script: str) -> None:
    said = site.cli("explain", script, "--flag", "value")
    assert "<printed> ['--flag', 'value']" in said
    assert "explain.html: 2 compiled functions, " in said
    page = (site.cwd / "explain.html").read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert checker.count["svg"] >= 4
    assert "http" not in page.replace('xmlns="http://www.w3.org/2000/svg"', "")
    for text in (
        "What became of prog.py", "always run", "backward, as compiled", "partition",
    ):  # fmt: skip
        assert text in page, text
    reasons = (
        "calls append() of a list made outside",
        "globals of __main__[&#x27;scale&#x27;] == 3.0",
    )
    for text in reasons if REPLAYS else ("observing calls is not supported",):
        assert text in page, text
    assert re.search(r"prog\.py:9, in train", page)


def test_the_text(site: Any, script: str) -> None:
    said = site.cli("explain", "--text", script)
    assert "train, backend aot_eager: " in said
    verdict = "replay; calls observed 1, replayed 2" if REPLAYS else "always run; calls observed 0"
    assert f"verdict: {verdict}" in said
    assert not (site.cwd / "explain.html").exists()


def test_the_page_is_written_however_the_script_ends(site: Any, script: str) -> None:
    site.cli("explain", "--out", "other.html", script, "fail", status=7)
    assert "</html>" in (site.cwd / "other.html").read_text(encoding="utf-8")


def test_a_script_that_compiles_nothing(site: Any) -> None:
    (site.cwd / "plain.py").write_text("print('plain')")
    site.cli("explain", "plain.py")
    assert "No function was compiled" in (site.cwd / "explain.html").read_text(encoding="utf-8")


def test_a_script_that_is_not_there(site: Any) -> None:
    assert "does not exist" in site.cli("explain", "gone.py", status=2)
