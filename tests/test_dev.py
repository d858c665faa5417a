"""dev.py makes its environment on machines that lack this or that, and hands pip's settings on."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

NOXFILE = """
import nox
nox.options.default_venv_backend = "none"

@nox.session
def hello(session):
    print("hello", *session.posargs)
"""
# Put before everything on the path, this hides modules while a file named `hidden` lists them.
SITECUSTOMIZE = """
import os, sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        file = os.path.join(os.path.dirname(__file__), "hidden")
        if os.path.exists(file) and name in open(file).read().split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hide())
"""


@pytest.fixture
def dev(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """dev.py as a module, its store in a temporary folder."""
    spec = importlib.util.spec_from_file_location("dev", root / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "STORE", tmp_path / ".dev")
    return module


@pytest.fixture
def machine(root: Path, tmp_path: Path) -> Path:
    """A checkout with dev.py and a noxfile of one session."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    (folder / "dev.py").write_text((root / "dev.py").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "noxfile.py").write_text(NOXFILE, encoding="utf-8")
    return folder


def run_dev(
    machine: Path, *arguments: str, hidden: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run dev.py on `machine` with the modules named in `hidden` not to be found."""
    site = machine / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(SITECUSTOMIZE, encoding="utf-8")
    (site / "hidden").write_text(hidden, encoding="utf-8")
    environ = {
        k: v for k, v in os.environ.items() if k not in {"VIRTUAL_ENV", "NOX_CURRENT_SESSION"}
    }
    environ.update(variables, PYTHONPATH=str(site))
    return subprocess.run(
        [sys.executable, str(machine / "dev.py"), *arguments],
        env=environ, cwd=machine.parent, capture_output=True, text=True, check=False, timeout=590,
    )  # fmt: skip


def leftovers(machine: Path) -> list[str]:
    return [p.name for p in (machine / ".dev").glob("making-*")]


# -- the three ways ------------------------------------------------------------------------------


@pytest.mark.timeout(600)  # it downloads what nox needs
@pytest.mark.parametrize("hidden", ["", "ensurepip"])
def test_makes_its_environment_once_and_runs_the_session(machine: Path, hidden: str) -> None:
    first = run_dev(machine, "hello", "two", "--words", hidden=hidden)
    assert first.returncode == 0, first.stderr
    assert "hello two --words" in first.stdout
    assert "making .dev" in first.stderr
    assert not leftovers(machine)
    (environment,) = (machine / ".dev").glob("env-*")
    # Only the first way puts pip into the environment.
    assert bool(list(environment.glob("**/site-packages/pip"))) == (not hidden)

    second = run_dev(machine, "hello", "--", "again", hidden=hidden)
    assert second.returncode == 0, second.stderr
    assert "hello again" in second.stdout
    assert "making" not in second.stderr


@pytest.mark.parametrize("hidden", ["ensurepip pip", "venv pip"])
def test_without_any_way_it_prints_what_to_type(machine: Path, hidden: str, tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    done = run_dev(machine, "hello", hidden=hidden, PATH=str(empty))
    assert done.returncode == 2
    assert "apt-get update && apt-get install -y python3-venv ca-certificates" in done.stderr
    assert "no venv or no ensurepip" in done.stderr
    assert "no pip" in done.stderr
    assert not leftovers(machine)


@pytest.mark.skipif(os.name == "nt", reason="apt-get is Debian's")
def test_as_root_on_debian_it_installs_what_is_missing(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apt-get brings ensurepip, after which the first way is open."""
    commands: list[list[str]] = []
    missing = {"ensurepip", "pip"}

    def run(command: list[str], environ: dict[str, str]) -> None:
        commands.append(command)
        if "python3-venv" in command:
            assert environ["DEBIAN_FRONTEND"] == "noninteractive"
            missing.discard("ensurepip")
        if "venv" in command:
            Path(command[-1]).mkdir()

    monkeypatch.setattr(dev, "run", run)
    monkeypatch.setattr(dev, "has_module", lambda name: name not in missing)
    monkeypatch.setattr(dev, "environment_for_uv", lambda _: {})
    monkeypatch.setattr(dev.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(dev.sys, "platform", "linux")
    monkeypatch.setattr(dev.os, "geteuid", lambda: 0)
    target = tmp_path / ".dev" / "env-x"
    dev.make_environment(target)
    assert target.is_dir()
    assert [c[0] for c in commands[:2]] == ["apt-get", "apt-get"]
    assert commands[0][1] == "update"
    assert commands[1][1] == "install"
    assert commands[1][-2:] == ["python3-venv", "ca-certificates"]

    monkeypatch.setattr(dev.os, "geteuid", lambda: 1000)
    missing.add("ensurepip")
    with pytest.raises(SystemExit) as caught:
        dev.make_environment(tmp_path / ".dev" / "env-y")
    assert caught.value.code == 2


@pytest.mark.system
@pytest.mark.timeout(600)
@pytest.mark.skipif(
    shutil.which("apt-get") is None or os.geteuid() != 0, reason="needs root on a Debian system"
)
def test_the_real_apt_get_opens_the_first_way(machine: Path, tmp_path: Path) -> None:
    """apt reads one more configuration file; its update uncovers what dev.py found missing."""
    hidden = machine / "site" / "hidden"
    config = tmp_path / "apt.conf"
    config.write_text(f"APT::Update::Post-Invoke-Success {{ \"rm -f '{hidden}'\"; }};\n")
    done = run_dev(machine, "hello", "there", hidden="ensurepip pip", APT_CONFIG=str(config))
    assert done.returncode == 0, done.stderr
    assert "hello there" in done.stdout
    assert not hidden.exists()


def test_a_failed_download_is_not_mended_by_apt(
    dev: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(command: list[str], environ: dict[str, str]) -> None:
        assert command[0] != "apt-get"
        raise dev.WayClosed("could not connect", missing=False)

    monkeypatch.setattr(dev, "run", run)
    with pytest.raises(SystemExit) as caught:
        dev.make_environment(tmp_path / ".dev" / "env-x")
    assert caught.value.code == 1
    assert "could not connect" in capsys.readouterr().err
    assert not list((tmp_path / ".dev").iterdir())


def test_without_a_name_it_prints_its_use(machine: Path) -> None:
    done = run_dev(machine)
    assert done.returncode == 2
    assert "python3 dev.py NAME" in done.stdout
    assert run_dev(machine, "--help").returncode == 0


def test_only_the_standard_library(root: Path) -> None:
    import ast

    tree = ast.parse((root / "dev.py").read_text(encoding="utf-8"))
    names = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [a.name for a in node.names]
        )
    }
    assert names <= sys.stdlib_module_names


# -- settings ------------------------------------------------------------------------------------


def test_pip_settings_are_ranked_as_pip_ranks_them(dev: ModuleType) -> None:
    text = (
        "WARNING: something = else\n"
        ":env:.index-url='https://env.invalid/simple'\n"
        "global.index-url='https://global.invalid/simple'\n"
        "global.extra-index-url='\\nhttps://a.invalid\\nhttps://b.invalid'\n"
        "install.extra-index-url='https://c.invalid'\n"
        "download.find-links='ignored'\n"
        "global.timeout='60'\n"
    )
    assert dev.parse_pip_config(text) == {
        "index-url": "https://env.invalid/simple",
        "extra-index-url": "https://c.invalid",
        "timeout": "60",
    }


def test_pip_settings_reach_uv(dev: ModuleType, tmp_path: Path) -> None:
    pip = {
        "index-url": "https://i.invalid/simple",
        "extra-index-url": "\nhttps://a.invalid\nhttps://b.invalid",
        "find-links": f"{tmp_path} {tmp_path / 'absent'} https://links.invalid/",
        "constraint": "one.txt two.txt",
        "cert": "ca.pem",
        "trusted-host": "i.invalid",
        "no-index": "true",
    }
    found = dev.uv_settings(pip, {})
    assert found == {
        "UV_DEFAULT_INDEX": "https://i.invalid/simple",
        "UV_INDEX": "https://a.invalid https://b.invalid",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": f"{tmp_path},https://links.invalid/",
        "UV_CONSTRAINT": "one.txt two.txt",
        "SSL_CERT_FILE": "ca.pem",
        "UV_INSECURE_HOST": "i.invalid",
        "UV_CONFIG_FILE": str(tmp_path / ".dev" / "uv.toml"),
    }
    assert (tmp_path / ".dev" / "uv.toml").read_text() == "no-index = true\n"


def test_settings_of_uv_itself_win(dev: ModuleType) -> None:
    pip = {"index-url": "https://pip.invalid", "cert": "pip.pem"}
    own = {"UV_INDEX_URL": "https://uv.invalid", "SSL_CERT_FILE": "uv.pem"}
    assert dev.uv_settings(pip, own) == {}
    assert dev.uv_settings({}, {"REQUESTS_CA_BUNDLE": "r.pem"}) == {"SSL_CERT_FILE": "r.pem"}


def test_settings_in_pips_own_files_are_found(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through pip itself, which knows where its files are."""
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nconstraint = here.txt\n[install]\nextra-index-url = https://x.invalid\n"
    )
    for name in [n for n in os.environ if n.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    environ = dev.environment_for_uv(sys.executable)
    assert environ["UV_CONSTRAINT"] == "here.txt"
    assert environ["UV_INDEX"] == "https://x.invalid"


def test_what_would_lead_pip_astray_is_dropped(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PIP_TARGET", "elsewhere")
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    kept = dev.clean_environment()
    assert not {"PIP_USER", "PIP_TARGET", "PYTHONPATH"} & set(kept)
