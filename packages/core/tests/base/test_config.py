"""Knobs: where values come from, and what happens to bad ones."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from mortice._base import config
from mortice._base.knobs import KNOBS
from mortice._base.logging import LOGGERS
from mortice.errors import ConfigError


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """No variable, no file, nothing assigned; all of it restored."""
    import os

    for name in [name for name in os.environ if name.startswith("MORTICE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(config, "_assigned", {})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "system"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    config.reload()
    yield
    config.reload()


def write(folder: Path, text: str) -> None:
    (folder / "mortice").mkdir(parents=True, exist_ok=True)
    (folder / "mortice" / "config.toml").write_text(text)
    config.reload()


def test_default_and_origin() -> None:
    assert config.fallback == "warn"
    assert config.origin("fallback") == "default"


def test_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "system", "num_threads = 1")
    assert config.num_threads == 1
    write(tmp_path / "user", "num_threads = 2")
    assert config.num_threads == 2
    monkeypatch.setenv("MORTICE_NUM_THREADS", "3")
    config.reload()
    assert config.num_threads == 3
    config.num_threads = 4
    assert config.num_threads == 4
    with config.override(num_threads=5):
        assert config.num_threads == 5
        with config.override(fallback="error"):
            assert (config.num_threads, config.fallback) == (5, "error")
    assert config.num_threads == 4
    del config.num_threads
    assert config.num_threads == 3


def test_empty_variable_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for knob in KNOBS.values():
        monkeypatch.setenv(knob.env, " ")
    config.reload()
    for knob in KNOBS.values():
        assert config.get(knob.name) == knob.default


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("fallback", "Error", "error"),
        ("plugin_autoload", "off", False),
        ("plugin_autoload", "TRUE", True),
        ("num_threads", " 8 ", 8),
        ("probe_timeout", "1.5", 1.5),
        ("plugins", "a, b,,c ", ("a", "b", "c")),
        ("prefer_plugins", "device:a=x, compile:b = y", {"device:a": "x", "compile:b": "y"}),
        ("logs", "all=DEBUG,plugins", {"all": "debug", "plugins": "info"}),
    ],
)
def test_values(monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: Any) -> None:
    monkeypatch.setenv(KNOBS[name].env, text)
    config.reload()
    assert config.get(name) == value


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("fallback", "erorr", "Did you mean 'error'?"),
        ("plugin_autoload", "2", "expected 1 or 0"),
        ("num_threads", "many", "expected a whole number"),
        ("num_threads", "-1", "of at least 0"),
        ("num_threads", "1.5", "expected a whole number"),
        ("probe_timeout", "0", "of at least 0.1"),
        ("probe_timeout", "nan", "of at least 0.1"),
        ("prefer_plugins", "device:a", "expected KEY=VALUE"),
        ("logs", "plugin", "Did you mean 'plugins'?"),
        ("logs", "plugins=loud", "no level 'loud'"),
        ("options", "device:cpu", 'expected tables named "KIND:NAME", in a config file'),
    ],
)
def test_bad_variable(monkeypatch: pytest.MonkeyPatch, name: str, text: str, hint: str) -> None:
    monkeypatch.setenv(KNOBS[name].env, text)
    config.reload()
    with pytest.raises(ConfigError) as caught:
        config.get(name)
    assert str(caught.value).startswith(f"{KNOBS[name].env} is {text!r}")
    assert hint in str(caught.value)


@pytest.mark.parametrize("value", ["", " ", b"kept", "a\0b"])
def test_what_is_no_path(value: Any) -> None:
    """An empty one would be the current directory."""
    with pytest.raises(ConfigError, match="cache_dir is .*, which is not usable: expected a path"):
        config.cache_dir = value


def test_misspelt_name_in_a_file_is_told_whatever_is_read(tmp_path: Path) -> None:
    write(tmp_path / "user", 'falback = "error"')
    with pytest.raises(ConfigError, match="no setting 'falback'. Did you mean 'fallback'"):
        _ = config.cache_dir


def test_misspelt_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORTICE_DISABLE_PLUGIN", "x")
    monkeypatch.setenv("MORTICE_ACME_SPEED", "its plug-in's own business")
    config.reload()
    with pytest.raises(ConfigError, match="Did you mean MORTICE_DISABLE_PLUGINS"):
        _ = config.fallback


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("fallbak = 'error'", "there is no setting 'fallbak'. Did you mean 'fallback'?"),
        ("fallback = 3", "fallback in .*config.toml is 3, .*expected text, found int"),
        ("fallback = ", "config.toml is not valid TOML"),
        ("plugins = 3", "expected a list of names"),
        ("plugins = [3]", "expected text"),
        ("num_threads = true", "expected a whole number"),
        ("options = {a = 3}", "expected tables named"),
        ("\xff", "is not UTF-8 text"),
    ],
)
def test_bad_file(tmp_path: Path, text: str, hint: str) -> None:
    write(tmp_path / "user", "")
    (tmp_path / "user" / "mortice" / "config.toml").write_bytes(text.encode("latin-1"))
    config.reload()
    with pytest.raises(ConfigError, match=hint):
        read_all()


def read_all() -> None:
    for knob in KNOBS:
        config.get(knob)


def test_project(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text("[tool.mortice]\nfallback = 'warn'\nnum_threads = 2\n")
    config.reload()
    assert config.num_threads == 2
    with config.override(fallback="silent"):
        assert config.fallback == "silent"
    write(tmp_path / "user", "fallback = 'error'\nnum_threads = 1")
    assert (config.fallback, config.num_threads) == ("error", 1)
    write(tmp_path / "user", "fallback = 'silent'\nnum_threads = 9")
    assert (config.fallback, config.num_threads) == ("warn", 2)
    assert "[tool.mortice]" in config.origin("fallback")
    project.write_text("[tool.mortice]\ncache_dir = '/tmp'")
    config.reload()
    with pytest.raises(ConfigError, match="a project may only narrow"):
        _ = config.cache_dir


@pytest.mark.parametrize("text", ["{{ cookiecutter }}", "[tool.other]\nx = 1", "\xff"])
def test_foreign_project_is_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_bytes(text.encode("latin-1"))
    config.reload()
    assert config.fallback == "warn"


def test_damaged_project_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.mortice]\nplugins = [\n")
    config.reload()
    with pytest.raises(ConfigError, match=r"pyproject\.toml is not valid TOML"):
        _ = config.plugins


def test_unknown_names() -> None:
    assert not hasattr(config, "fallbak")
    with pytest.raises(ConfigError, match="Did you mean 'fallback'"):
        config.fallbak  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="Did you mean 'fallback'"):
        config.fallbak = "error"
    with pytest.raises(ConfigError, match="Did you mean 'fallback'"), config.override(fallbak="x"):
        pass
    with pytest.raises(ConfigError, match="expected one of"), config.override(fallback="x"):
        pass


def test_override_is_of_the_thread_and_the_task() -> None:
    seen: list[str] = []
    with config.override(fallback="error"):
        thread = threading.Thread(target=lambda: seen.append(config.fallback))
        thread.start()
        thread.join()
    assert seen == ["warn"]

    async def one(value: str) -> str:
        with config.override(fallback=value):
            await asyncio.sleep(0.01)
            return config.fallback

    async def both() -> list[str]:
        return await asyncio.gather(one("error"), one("silent"))

    assert asyncio.run(both()) == ["error", "silent"]


def test_override_is_undone_by_an_exception() -> None:
    with pytest.raises(KeyError), config.override(fallback="error"):
        raise KeyError
    assert config.fallback == "warn"


def test_one_module_under_both_names() -> None:
    import mortice.config

    assert mortice.config is config
    assert set(KNOBS) <= set(dir(config))


def test_no_knob_without_a_reader() -> None:
    """A knob that nothing reads would be a promise without proof."""
    source = Path(config.__file__).parents[1]
    # num_threads is read by mortice-cpu, which lies beside us or is not there
    packages = [source, *source.parent.glob("mortice_cpu"),
                *source.parents[2].glob("backend-cpu/src/mortice_cpu")]  # fmt: skip
    text = "".join(
        file.read_text(encoding="utf-8")
        for package in packages
        for file in package.rglob("*.py")
        if file.name not in ("config.py", "knobs.py")
    )
    unread = {name for name in KNOBS if f"config.{name}" not in text}
    assert unread - (set() if len(packages) > 1 else {"num_threads"}) == set()


def test_logs(site: Any) -> None:
    site.device("good")
    code = """
    from mortice import _plugins
    _plugins.load("device", "good")
    import sys
    print("logging" in sys.modules)
    """
    assert site.run(code) == "False\n"
    fresh = str(site.root / "another cache")  # so that it scans, however slow the machine is
    said = site.run(code, MORTICE_LOGS="plugins=debug", MORTICE_CACHE_DIR=fresh)
    assert f"mortice.plugins DEBUG: scanning {site.path}" in said
    assert "mortice.plugins INFO: acme-good 1.0 (good = acme_good in mortice.devices)" in said
    assert "scanning" not in site.run(code, MORTICE_LOGS="plugins")
    assert "INFO: acme-good" in site.run(code, MORTICE_LOGS="all")


def test_no_logger_without_a_user() -> None:
    source = Path(config.__file__).parents[1]
    text = "".join(file.read_text(encoding="utf-8") for file in source.rglob("*.py"))
    for name in LOGGERS:
        assert f'active("{name}")' in text or f'get_logger("{name}")' in text


def test_application_handles_our_logs(site: Any) -> None:
    code = """
    import logging, sys
    logging.basicConfig(level="DEBUG", stream=sys.stdout, format="app %(message)s")
    from mortice._base.logging import get_logger
    get_logger("plugins").debug("detail")
    """
    assert site.run(code) == "app detail\n"


def test_unknown_logger() -> None:
    from mortice._base.logging import get_logger

    with pytest.raises(ValueError, match="Did you mean 'plugins'"):
        get_logger("plugin")
