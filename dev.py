"""Run a session of noxfile.py on a machine that has Python and nothing else.

    python3 dev.py NAME [ARGS...]

makes an environment with nox and uv under ``.dev/`` once, then runs the nox session NAME with
ARGS. It needs the standard library only, and Python 3.10 or later. The environment is made in a
temporary directory and renamed, so that an interrupted run leaves nothing half made. Three ways
are tried in order:

1. ``python -m venv``, and pip in it;
2. ``pip install --target`` of uv, and ``uv venv``, where ensurepip is missing;
3. as root on Debian, ``apt-get install python3-venv ca-certificates``, then the first way again.

Where none is open, the command of the third way is printed and the exit status is 2. Settings of
pip (indexes, links, certificates, constraints, proxies) are handed on to uv.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent
STORE = ROOT / ".dev"
REQUIREMENTS = ("nox>=2025.2.9", "uv>=0.5")
APT_PACKAGES = ("python3-venv", "ca-certificates")
APT_COMMAND = "apt-get update && apt-get install -y " + " ".join(APT_PACKAGES)
WINDOWS = os.name == "nt"

# pip's option, uv's variable, what joins several values. A file must exist for uv, not for pip.
PIP_TO_UV = (
    ("index-url", "UV_DEFAULT_INDEX", " "),
    ("extra-index-url", "UV_INDEX", " "),
    ("find-links", "UV_FIND_LINKS", ","),
    ("constraint", "UV_CONSTRAINT", " "),
    ("build-constraint", "UV_BUILD_CONSTRAINT", " "),
    ("trusted-host", "UV_INSECURE_HOST", " "),
    ("cert", "SSL_CERT_FILE", " "),
    ("client-cert", "SSL_CLIENT_CERT", " "),
    ("proxy", "ALL_PROXY", " "),
    ("timeout", "UV_HTTP_TIMEOUT", " "),
)
# Settings of pip that would send an installation elsewhere than into the environment.
PIP_MISLEADING = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_VIRTUALENV")


class WayClosed(Exception):
    """One way of making the environment cannot be gone here; the message says why."""

    def __init__(self, reason: str, *, missing: bool) -> None:
        super().__init__(reason)
        self.missing = missing  # a part of the system is missing, as opposed to: a command failed


# -- settings ------------------------------------------------------------------------------------


def parse_pip_config(text: str) -> dict[str, str]:
    """Read ``pip config list``: the environment wins over [install], and that over [global]."""
    ranked: dict[str, tuple[int, str]] = {}
    ranks = {"global": 0, "install": 1, ":env:": 2}
    for line in text.splitlines():
        name, separator, literal = line.partition("=")
        section, _, option = name.strip().rpartition(".")
        if not separator or section not in ranks:
            continue
        try:
            value = ast.literal_eval(literal.strip())
        except (SyntaxError, ValueError):
            continue  # a warning that pip printed among its settings
        rank = ranks[section]
        if option not in ranked or ranked[option][0] <= rank:
            ranked[option] = (rank, str(value))
    return {option: value for option, (_, value) in ranked.items()}


def uv_settings(pip: dict[str, str], environ: dict[str, str]) -> dict[str, str]:
    """Translate pip's settings for uv; what the user has set for uv itself stays as it is."""
    found: dict[str, str] = {}
    for option, variable, joint in PIP_TO_UV:
        values = pip.get(option, "").split()
        if option == "find-links":
            values = [v for v in values if "://" in v or Path(v).exists()]
        if values:
            found[variable] = joint.join(values)
    if "SSL_CERT_FILE" not in found and "REQUESTS_CA_BUNDLE" in environ:
        found["SSL_CERT_FILE"] = environ["REQUESTS_CA_BUNDLE"]  # pip obeys it, uv does not
    if "UV_INDEX" in found:
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # as pip, which reads all its indexes
    if environ.get("UV_INDEX_URL"):
        found.pop("UV_DEFAULT_INDEX", None)
    if environ.get("UV_EXTRA_INDEX_URL"):
        found.pop("UV_INDEX", None)
    if pip.get("no-index", "").lower() in {"1", "true", "yes", "on"}:
        found["UV_CONFIG_FILE"] = str(no_index_config())
    return {name: value for name, value in found.items() if not environ.get(name)}


def no_index_config() -> Path:
    """Write uv's ``no-index`` setting to a file, for there is no variable for it."""
    path = STORE / "uv.toml"
    STORE.mkdir(exist_ok=True)
    path.write_text("no-index = true\n", encoding="utf-8")
    return path


def read_pip_config(python: str) -> dict[str, str]:
    """Ask pip for its settings; empty where this interpreter has no pip."""
    done = subprocess.run(
        [python, "-m", "pip", "config", "list"],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return parse_pip_config(done.stdout) if done.returncode == 0 else {}


def clean_environment() -> dict[str, str]:
    """Return os.environ without what would lead pip or the new interpreter astray."""
    astray = {*PIP_MISLEADING, "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"}
    return {k: v for k, v in os.environ.items() if k not in astray}


def environment_for_uv(python: str) -> dict[str, str]:
    """Return the environment in which uv and nox run: pip's settings translated, a cache."""
    environ = clean_environment()
    # pip of the calling interpreter knows the user's and the system's files; where it has none,
    # the new environment's pip (the third way) reads the same files.
    caller = sys.executable if has_module("pip") else python
    environ.update(uv_settings(read_pip_config(caller), environ))
    environ.setdefault("UV_PYTHON_DOWNLOADS", "never")
    if not os.access(Path.home(), os.W_OK):
        environ.setdefault("UV_CACHE_DIR", str(STORE / "uv-cache"))
    return environ


# -- making the environment ----------------------------------------------------------------------


def has_module(name: str) -> bool:
    """Say whether a module can be imported."""
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def python_in(environment: Path) -> str:
    """Return the path of the interpreter of an environment."""
    return str(environment / ("Scripts/python.exe" if WINDOWS else "bin/python"))


def run(command: list[str], environ: dict[str, str]) -> None:
    """Run a command quietly; its closing lines are the reason if it fails."""
    done = subprocess.run(
        command,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        closing = "\n".join("    " + line for line in done.stdout.strip().splitlines()[-8:])
        message = f"`{' '.join(command)}` ended with status {done.returncode}:\n{closing}"
        raise WayClosed(message, missing=False)


def make_with_venv(directory: Path) -> Path:
    """First way: venv with its pip, which fetches uv, which fetches the rest."""
    if not (has_module("venv") and has_module("ensurepip")):
        raise WayClosed("this Python has no venv or no ensurepip", missing=True)
    environment = directory / "env"
    run([sys.executable, "-m", "venv", str(environment)], clean_environment())
    python = python_in(environment)
    quiet = ["--quiet", "--disable-pip-version-check"]
    run([python, "-m", "pip", "install", *quiet, REQUIREMENTS[1]], clean_environment())
    uv_install([python, "-m", "uv"], python)
    return environment


def make_with_pip(directory: Path) -> Path:
    """Second way: the calling interpreter's pip puts uv into a folder; uv makes the rest."""
    if not has_module("pip"):
        raise WayClosed("this Python has no pip", missing=True)
    folder, environment = directory / "uv", directory / "env"
    quiet = ["--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *quiet, "--target", str(folder)]
    run([*command, REQUIREMENTS[1]], clean_environment())
    uv = str(folder / "bin" / ("uv.exe" if WINDOWS else "uv"))
    python = python_in(environment)
    environ = environment_for_uv(sys.executable)
    run([uv, "venv", "--quiet", "--python", sys.executable, str(environment)], environ)
    uv_install([uv], python)
    return environment


def make_with_apt(directory: Path) -> Path:
    """Third way: install what Debian splits off from Python, then go the first way."""
    if sys.platform != "linux" or shutil.which("apt-get") is None:
        raise WayClosed("this is not a Debian system", missing=True)
    if os.geteuid() != 0:
        raise WayClosed("apt-get needs root", missing=True)
    environ = {**clean_environment(), "DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update", "-q"], environ)
    run(["apt-get", "install", "-q", "-y", *APT_PACKAGES], environ)
    importlib.invalidate_caches()
    return make_with_venv(directory)


def uv_install(uv: list[str], python: str) -> None:
    """Install what the sessions are run with."""
    command = [*uv, "pip", "install", "--quiet", "--python", python, *REQUIREMENTS]
    run(command, environment_for_uv(python))


def environment_path() -> Path:
    """Return where the environment for this interpreter and these requirements lies."""
    key = repr((REQUIREMENTS, sys.version_info[:3], sys.base_prefix))
    return STORE / f"env-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def make_environment(target: Path) -> None:
    """Make the environment by the first way that is open, then rename it to `target`.

    Exits with status 2 if a part of the system is missing, 1 if a command failed.
    """
    print(f"dev.py: making {target.relative_to(ROOT)} (once)", file=sys.stderr, flush=True)
    STORE.mkdir(exist_ok=True)
    closed: list[WayClosed] = []
    for way in (make_with_venv, make_with_pip, make_with_apt):
        # apt-get mends a missing part, not a failed download.
        if way is make_with_apt and not any(reason.missing for reason in closed):
            break
        directory = Path(tempfile.mkdtemp(prefix="making-", dir=STORE))
        try:
            made = way(directory)
            # Another run may have been quicker; its environment is as good.
            with contextlib.suppress(OSError):
                made.rename(target)
            if target.is_dir():
                return
            closed.append(WayClosed(f"cannot rename {made} to {target}", missing=False))
        except WayClosed as reason:
            closed.append(reason)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    give_up(closed)


def give_up(closed: list[WayClosed]) -> None:
    """Say why no way was open and what to type, then exit."""
    print("dev.py: cannot make an environment:", file=sys.stderr)
    for reason in closed:
        print(f"  - {reason}", file=sys.stderr)
    if any(reason.missing for reason in closed):
        print(
            f"Install Python's venv module. On Debian, as root:\n\n    {APT_COMMAND}\n",
            file=sys.stderr,
        )
        sys.exit(2)
    sys.exit(1)


def main(arguments: list[str]) -> int:
    """Make the environment if it is not there yet; run nox in it; return nox's status."""
    if sys.version_info < (3, 10):  # noqa: UP036  who runs an older one is to be told so
        print("dev.py: needs Python 3.10 or later, this is " + sys.version, file=sys.stderr)
        return 2
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(__doc__)
        return 0 if arguments else 2
    target = environment_path()
    if not Path(python_in(target)).exists():
        make_environment(target)
    python = python_in(target)
    name, *rest = arguments
    rest = rest[1:] if rest[:1] == ["--"] else rest
    command = [python, "-m", "nox", "--noxfile", str(ROOT / "noxfile.py"), "--session", name]
    command += ["--", *rest] if rest else []
    environ = environment_for_uv(python)
    if WINDOWS:  # os.execve there returns to the shell at once
        return subprocess.call(command, env=environ)
    sys.stdout.flush()
    return os.execve(python, command, environ)  # noqa: S606  so that signals reach nox itself


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
