"""Every package: one version, one licence, what it may weigh and depend on, where it came from."""

from __future__ import annotations

import email
import importlib.metadata
import importlib.util
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

# Bytes of the wheel, and the distributions it may declare. Raise a budget on purpose only.
BUDGETS: dict[str, tuple[int, set[str]]] = {
    "mortice": (
        1_250_000,
        {"numpy", "ml-dtypes", "pluggy", "packaging", "click", "rich", "tomli"},
    ),
    "mortice-llvm": (300_000, {"llvmlite"}),
    "mortice-cpu": (300_000, {"mortice", "mortice-llvm", "numpy"}),
    "mortice-inductor": (300_000, {"mortice", "mortice-llvm", "numpy"}),
    "mortice-gloo": (60_000, {"mortice", "numpy", "xoscar"}),
    "mortice-mpi": (60_000, {"mortice", "numpy", "mpi4py"}),
    "mortice-nccl": (60_000, {"mortice", "numpy", "nccl4py"}),
    "mortice-ucc": (60_000, {"mortice", "numpy"}),
    "mortice-xccl": (60_000, {"mortice", "numpy"}),
    "mortice-ray": (60_000, {"mortice"}),
    "mortice-nn": (200_000, {"mortice", "numpy"}),
    "mortice-testing": (300_000, {"mortice", "click", "numpy", "pytest", "hypothesis"}),
}
NAMES = sorted(BUDGETS)
Projects = dict[str, tuple[Path, dict[str, Any]]]


def wheel_of(wheelhouse: Path, name: str) -> Path:
    (found,) = wheelhouse.glob(f"{name.replace('-', '_')}-*.whl")
    return found


def metadata_of(path: Path) -> email.message.Message:
    with zipfile.ZipFile(path) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def test_every_package_has_a_budget(projects: Projects) -> None:
    assert sorted(projects) == NAMES


def test_one_version(projects: Projects) -> None:
    versions = {}
    for name, (folder, parsed) in projects.items():
        text = (folder / parsed["tool"]["hatch"]["version"]["path"]).read_text(encoding="utf-8")
        match = re.search(r'__version__ = "([^"]+)"', text)
        assert match, name
        versions[name] = match[1]
    assert len(set(versions.values())) == 1, versions


@pytest.mark.parametrize("name", NAMES)
def test_installed_version_is_the_one_in_the_code(name: str) -> None:
    module = __import__(name.replace("-", "_"))
    assert module.__version__ == importlib.metadata.version(name)


@pytest.mark.parametrize("name", NAMES)
def test_installed_from_the_wheelhouse(name: str, wheelhouse: Path) -> None:
    """An index never supplies one of our names: each was installed by the path of its wheel."""
    text = importlib.metadata.distribution(name).read_text("direct_url.json")
    assert text is not None, f"{name} came from an index"
    assert json.loads(text)["url"] == wheel_of(wheelhouse, name).as_uri()


@pytest.mark.parametrize("name", NAMES)
def test_tests_import_the_wheel_not_the_source(name: str, root: Path) -> None:
    spec = importlib.util.find_spec(name.replace("-", "_"))
    assert spec is not None
    assert spec.origin is not None
    assert not Path(spec.origin).is_relative_to(root / "packages")


@pytest.mark.parametrize("name", NAMES)
def test_wheel_is_within_its_budget(name: str, wheelhouse: Path) -> None:
    path = wheel_of(wheelhouse, name)
    most, allowed = BUDGETS[name]
    assert path.stat().st_size <= most
    declared = {
        Requirement(text).name
        for text in metadata_of(path).get_all("Requires-Dist", [])
        if "extra ==" not in text
    }
    assert declared == allowed


@pytest.mark.parametrize("name", NAMES)
def test_wheel_is_typed_licensed_and_ours_alone(name: str, wheelhouse: Path) -> None:
    module = name.replace("-", "_")
    path = wheel_of(wheelhouse, name)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    assert f"{module}/py.typed" in names
    assert any(n.endswith("dist-info/licenses/LICENSE") for n in names)
    assert {n.split("/")[0] for n in names if ".dist-info/" not in n} == {module}
    assert not [n for n in names if "__pycache__" in n or n.endswith((".so", ".o"))]
    assert metadata_of(path)["Requires-Python"] == ">=3.10"


def test_plugins_pin_core_compatibly(projects: Projects) -> None:
    version = importlib.metadata.version("mortice")
    series = ".".join([*version.split(".")[:2], "0"])
    for name, (_, parsed) in projects.items():
        extras = parsed["project"].get("optional-dependencies", {}).values()
        texts = [*parsed["project"]["dependencies"], *(t for extra in extras for t in extra)]
        for requirement in map(Requirement, texts):
            if requirement.name.startswith("mortice") and requirement.name != name:
                assert str(requirement.specifier) == f"~={series}", (name, str(requirement))


def test_plugins_carry_a_manifest_in_their_dist_info(projects: Projects, wheelhouse: Path) -> None:
    for name, (_, parsed) in projects.items():
        with zipfile.ZipFile(wheel_of(wheelhouse, name)) as archive:
            found = [n for n in archive.namelist() if n.endswith("/extra_metadata/mortice.toml")]
        assert len(found) == bool(parsed["project"].get("entry-points")), name


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_point_resolves(name: str) -> None:
    for entry in importlib.metadata.distribution(name).entry_points:
        assert entry.load() is not None, entry


def test_licence_is_the_same_everywhere(root: Path, projects: Projects) -> None:
    text = (root / "LICENSE").read_text(encoding="utf-8")
    for folder, _ in projects.values():
        assert (folder / "LICENSE").read_text(encoding="utf-8") == text


def test_type_checker_and_contracts_see_every_package(root: Path, projects: Projects) -> None:
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    for name, (folder, _) in projects.items():
        source = f'"{folder.relative_to(root).as_posix()}/src",'
        assert text.count(source) == 2, f"[tool.pyright] include and extraPaths lack {source}"
        assert f'"{name.replace("-", "_")}"' in text
        assert f"{name} = {{ workspace = true }}" in text


def test_contracts_close_every_private_floor_of_core(root: Path) -> None:
    source = root / "packages" / "core" / "src" / "mortice"
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    contract = text[text.index("Plug-ins import public modules of core only") :]
    for path in sorted(source.glob("_*/__init__.py")):
        assert f'"mortice.{path.parent.name}"' in contract, f"add it to {contract[:43]!r}"
