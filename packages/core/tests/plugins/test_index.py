"""The index: what makes it read a directory again, and what a warm look costs."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import packaging.specifiers
import packaging.version  # noqa: F401  both import more later, which a bare sys.path would stop
import pytest

from mortice._plugins import index, metadata, records, store

OLD = 1_700_000_000


def age(path: Path) -> None:
    """Make everything below ``path`` old, so that it counts as settled."""
    for folder, _, files in os.walk(path, topdown=False):
        for file in files:
            os.utime(os.path.join(folder, file), (OLD, OLD))
        os.utime(folder, (OLD, OLD))


@pytest.fixture
def fresh(site: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An environment that this process itself looks at, with an index of its own."""
    from mortice._base import config

    monkeypatch.setattr(sys, "path", [str(site.path)])
    monkeypatch.setattr(config, "cache_dir", str(site.cache))
    forget(monkeypatch)
    return site


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: only what is on disk is known."""
    monkeypatch.setattr(index, "_memory", {})
    monkeypatch.setattr(index, "_disk_read", False)


def names() -> list[str]:
    return sorted(name for f in index.snapshot().found for _, name, _ in f.entries)


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The directories that were scanned."""
    done: list[str] = []
    real = index._scan

    def scan(path: str, record: records.Directory) -> None:
        done.append(path)
        real(path, record)

    monkeypatch.setattr(index, "_scan", scan)
    return done


def test_settled_directory_is_scanned_once_for_all_processes(
    fresh: Any, scans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh.device("good")
    age(fresh.path)
    for _ in range(3):
        forget(monkeypatch)
        assert names() == ["good"]
    assert scans == [str(fresh.path)]


def test_warm_look_costs_one_stat_per_directory_and_file(
    fresh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        (fresh.path / f"other_{number}-1.0.dist-info").mkdir()
    fresh.device("good")
    age(fresh.path)
    names()
    forget(monkeypatch)
    calls: list[str] = []
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **o: calls.append(str(path)) or real(path, **o))
    monkeypatch.setattr(os, "scandir", lambda *a: pytest.fail("a directory was listed"))
    assert names() == ["good"]
    info = fresh.path / "acme_good-1.0.dist-info"
    assert sorted(calls) == sorted(
        map(
            str,
            [fresh.path, info / "entry_points.txt", info / "extra_metadata" / "mortice.toml"],
        )
    )


def test_young_directory_is_not_trusted(fresh: Any, scans: list[str]) -> None:
    fresh.device("good")
    names()
    names()
    assert len(scans) == 2


def test_install_uninstall_and_upgrade_are_seen(fresh: Any) -> None:
    info = fresh.device("one")
    age(fresh.path)
    assert names() == ["one"]
    fresh.device("two")
    assert names() == ["one", "two"]
    age(fresh.path)
    names()
    info.rename(fresh.path / "acme_one-2.0.dist-info")
    (fresh.path / "acme_one-2.0.dist-info" / "METADATA").write_text("Name: acme-one\nVersion: 2.0")
    versions = [f.distribution.version for f in index.snapshot().found]
    assert versions == ["2.0", "1.0"]


def test_edit_in_place_is_seen(fresh: Any) -> None:
    info = fresh.device("one")
    age(fresh.path)
    assert names() == ["one"]
    (info / "entry_points.txt").write_text("[mortice.devices]\nuno = acme_one\n")
    os.utime(fresh.path, (OLD, OLD))
    assert names() == ["uno"]


def test_edit_of_the_manifest_is_seen(fresh: Any) -> None:
    info = fresh.device("one")
    age(fresh.path)
    assert index.snapshot().found[0].problem == ""
    (info / "extra_metadata" / "mortice.toml").write_text("hook_api = 3")
    os.utime(fresh.path, (OLD, OLD))
    assert "hook_api is 3" in index.snapshot().found[0].problem


def test_group_gained_in_place_is_seen_by_refresh(fresh: Any) -> None:
    info = fresh.add("acme-one", entries={"other": {"x": "y"}}, manifest=None)
    age(fresh.path)
    assert names() == []
    (info / "entry_points.txt").write_text("[mortice.devices]\nuno = acme_one\n")
    age(fresh.path)
    assert names() == []
    index.snapshot(refresh=True)
    assert names() == ["uno"]


def test_name_not_found_refreshes_by_itself(site: Any) -> None:
    info = site.add("acme-one", entries={"other": {"x": "y"}}, manifest=None)
    age(site.path)
    assert "uno" not in site.cli("list-backends")
    site.device("uno", dist="acme-one", folder=site.root / "other")
    (info / "entry_points.txt").write_text("[mortice.devices]\nuno = acme_one\n")
    (site.path / "acme_one.py").write_text((site.root / "other" / "acme_one.py").read_text())
    age(site.path)
    assert "Device" in site.run(
        "from mortice import _plugins; print(_plugins.load('device', 'uno'))"
    )


def test_index_is_not_written_onto_the_path(fresh: Any) -> None:
    fresh.device("good")
    before = sorted(os.walk(fresh.path))
    names()
    assert sorted(os.walk(fresh.path)) == before


def test_foreign_index_is_not_trusted(fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh.device("good")
    age(fresh.path)
    names()
    assert list(store.read()) == [str(fresh.path)]
    monkeypatch.setattr(os, "getuid", lambda: 12345, raising=False)
    monkeypatch.setattr(store, "_file", lambda: str(next(fresh.cache.glob("plugins/*/index.json"))))
    assert store.read() == {}


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"x": 1}', b'{"x": {"mtime": "y"}}', b"null"])
def test_wellformed_but_wrong_index(fresh: Any, body: bytes) -> None:
    names()
    path = store._file()
    assert path is not None
    store.replace_file(path, store._header(body) + b"\n" + body)
    assert store.read() == {}


def test_odd_entries_of_sys_path(fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh.device("good")
    odd = ["", "relative", "/no/such", "nul\0byte", None, 7, fresh.path, os.fsencode(fresh.path)]
    monkeypatch.setattr(sys, "path", odd)
    assert names() == ["good"]


def test_unlistable_directory(fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh.device("good")

    def denied(path: str) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", denied)
    assert index.snapshot().problems == [(str(fresh.path), "cannot be listed: Permission denied")]


def test_unknown_group_is_told(fresh: Any) -> None:
    fresh.add("acme-one", entries={"mortice.device": {"x": "y"}})
    ((_, what),) = index.snapshot().problems
    assert "[mortice.device] is no group we know" in what
    assert "Did you mean 'mortice.devices'?" in what


@pytest.mark.parametrize(
    ("text", "found", "wrong"),
    [
        ("[mortice.devices]\na=b\nc = d:e\n", 2, 0),
        ("[ mortice.devices ]\r\na = b\r\n", 1, 0),
        ("; note\n# note\n\n[console_scripts]\nx = y\n[mortice.devices]\na = b", 1, 0),
        ("[mortice.devices\na = b", 1, 1),
        ("[mortice.devices]\na\n= b\nc =", 0, 3),
        ("mortice.devices = x", 0, 1),
        ("", 0, 0),
    ],
)
def test_parse_entry_points(text: str, found: int, wrong: int) -> None:
    entries, mistakes = metadata.parse_entry_points(text)
    assert (len(entries), len(mistakes)) == (found, wrong)


@pytest.mark.parametrize(
    ("value", "parsed"),
    [
        ("a", ("a", "")),
        ("a.b:c.d", ("a.b", "c.d")),
        (" a : b ", ("a", "b")),
        ("a:b [extra]", ("a", "b")),
        ("a [x, y]", ("a", "")),
        ("", None),
        ("a-b", None),
        ("a:b c", None),
    ],
)
def test_parse_value(value: str, parsed: Any) -> None:
    assert metadata.parse_value(value) == parsed


def test_normalised_names() -> None:
    assert metadata.normalised("Acme_NPU.x--y") == "acme-npu-x-y"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ("variables = 3", "variables is not a table of NAME"),
        ("[variables]\nMORTICE_NPU_TRACE = 1", "variables is not a table of NAME"),
        ("[variables]\nMORTICE_A = {type = 'int'}", "'MORTICE_A' has no doc"),
        ("[variables]\nMORTICE_A = {type = 'list', doc = ''}", "is 'list'; expected bool or int"),
        ("[variables]\nMORTICE_A = {typ = 'int', doc = ''}", "'typ'. Did you mean 'type'?"),
        ("[variables]\nNPU_TRACE = 'x'", "'NPU_TRACE' does not begin with MORTICE_"),
        ("[variables]\nMORTICE_FALLBACK = 'x'", "'MORTICE_FALLBACK' is mortice's own"),
        (
            "[variable]\nMORTICE_NPU_TRACE = 'x'",
            "unknown key 'variable'. Did you mean 'variables'?",
        ),
    ],
)
def test_variables_that_cannot_be_declared(variables: str, said: str) -> None:
    from mortice._plugins import manifest
    from mortice.errors import ConfigError

    with pytest.raises(ConfigError, match=re.escape(said)):
        manifest.parse(f"hook_api = '>=1'\n{variables}".encode(), "mortice.toml")
