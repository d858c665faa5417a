"""docs/plugins.md, docs/cli.md and docs/configuration.md say what the code says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from mortice._base import toml
from mortice._base.knobs import KNOBS
from mortice._plugins import entry, groups, hookspecs, manifest
from mortice._plugins.resolution import ERRORS
from mortice.cli.root import COMMANDS, cli


@pytest.fixture(scope="module")
def plugins(root: Path) -> str:
    return (root / "docs" / "plugins.md").read_text(encoding="utf-8")


NUMBERS = """
x = mortice.tensor([1.0, 2.0], device="npu")
print((x + 1).tolist())
print(x.clone().add_(1.0).tolist())
print((x.long() + 1).tolist())
y = x.long() + 1.5
print(y.tolist(), y.dtype)
print(x.add(2, alpha=2.5).tolist())
"""
TRAINING = """
w = mortice.tensor([1.0, 2.0], device="npu", requires_grad=True)
optimizer = mortice.optim.Adam([w], lr=0.1)
(w + 1).backward(mortice.ones(2, device="npu"))
optimizer.step()
print([round(value, 4) for value in w.tolist()])
"""
CONFORMANCE = """
from mortice.testing.conformance import measure_all
print([found for found in measure_all("npu") if found.how == "failed"])
"""


def rows(text: str) -> list[list[str]]:
    """The cells of all table rows."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_group(plugins: str) -> None:
    found = {
        row[0]: row for row in rows(plugins) if len(row) == 4 and row[1].startswith("`mortice.")
    }
    assert list(found) == [f"`{group.kind}`" for group in groups.GROUPS.values()]
    for group in groups.GROUPS.values():
        _, name, hook, when = found[f"`{group.kind}`"]
        assert name == f"`{group.name}`"
        assert when == group.loaded_when
        assert hook.startswith(f"`{group.hook}`" if group.hook else ("none", "events"))


def test_every_hook_and_its_arguments(plugins: str) -> None:
    for name, hook in vars(hookspecs).items():
        if not name.startswith("mortice_"):
            continue
        assert f"`{name}`" in plugins
        arguments = hook.__code__.co_varnames[: hook.__code__.co_argcount]
        if arguments != ("name",):
            assert f"| `{name}` | {', '.join(f'`{one}`' for one in arguments)} |" in plugins


def test_every_state_and_its_error(plugins: str) -> None:
    found = {row[0].strip("`"): row[2].strip("`") for row in rows(plugins) if len(row) == 3}
    states = [state for state in found if state in entry.STATES]
    assert states == list(entry.STATES)
    for state, error in ERRORS.items():
        assert found[state] == error.__name__


def test_every_manifest_key(plugins: str) -> None:
    words = (
        "hook_api",
        *manifest._ENTRY_KEYS,
        *manifest.NEEDS,
        *manifest.OPTION_TYPES,
        *manifest._OPTION_KEYS,
        *groups.HIDDEN_TAGS,
    )
    for word in words:
        assert re.search(rf"`{word}`|\b{word}\b[,}}]", plugins), word
    assert f"has number {groups.HOOK_API_VERSION} " in plugins


def test_every_policy_knob(plugins: str) -> None:
    for name in ("plugins", "disable_plugins", "plugin_autoload", "prefer_plugins", "listeners",
                 "plugin_lock"):  # fmt: skip
        assert f"`{KNOBS[name].env}=" in plugins


def test_every_knob(root: Path) -> None:
    text = (root / "docs" / "configuration.md").read_text(encoding="utf-8")
    found = {row[0].strip("`"): row for row in rows(text)}
    for knob in KNOBS.values():
        assert found[knob.name][2] == knob.doc
        assert (found[knob.name][3] == "no") == (knob.narrow is None)
    assert [name for name in found if name in KNOBS] == list(KNOBS)


def test_every_variable_of_a_plugin(root: Path) -> None:
    text = (root / "docs" / "configuration.md").read_text(encoding="utf-8")
    found = {row[0].strip("`"): row for row in rows(text) if row[0].startswith("`MORTICE_")}
    declared: dict[str, tuple[list[str], str, str]] = {}
    for file in sorted(root.glob("packages/*/mortice.toml")):
        project = toml.parse((file.parent / "pyproject.toml").read_bytes(), str(file))
        told = manifest.parse(file.read_bytes(), str(file))
        for name, told_of in told["variables"].items():
            one = {"type": "text", "doc": told_of} if isinstance(told_of, str) else told_of
            same = declared.setdefault(name, ([], one["type"], one["doc"]))
            assert same[1:] == (one["type"], one["doc"])
            same[0].append(project["project"]["name"])
    assert {name: (row[1].split(", "), *row[2:]) for name, row in found.items()} == declared


def test_every_command_and_option(root: Path) -> None:
    text = (root / "docs" / "cli.md").read_text(encoding="utf-8")
    sections = {s.split("\n", 1)[0]: s for s in text.split("\n## ")}
    context = click.Context(cli)
    for name in COMMANDS:
        title = next(title for title in sections if title.startswith(f"`mortice {name}"))
        command = cli.get_command(context, name)
        assert command is not None
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                option = parameter.opts[0]
                assert option in sections[title], f"{name} {option}"


def test_the_example_works(plugins: str, tmp_path: Path) -> None:
    """The three files of the first section, laid out as its builder would install them."""
    files = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", plugins, re.DOTALL))
    assert set(files) == {"pyproject.toml", "mortice.toml", "acme_npu/__init__.py"}
    info = tmp_path / "acme_npu-1.0.dist-info"
    (info / "extra_metadata").mkdir(parents=True)
    (tmp_path / "acme_npu").mkdir()
    (info / "METADATA").write_text("Name: acme-npu\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mortice.devices]\nnpu = acme_npu\n")
    (info / "extra_metadata" / "mortice.toml").write_text(files["mortice.toml"])
    (tmp_path / "acme_npu" / "__init__.py").write_text(files["acme_npu/__init__.py"])

    def run(*arguments: str) -> str:
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-W", "error", *arguments],
            env={**os.environ, "PYTHONPATH": path, "MORTICE_CACHE_DIR": str(tmp_path / "cache")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    (decision,) = json.loads(run("-m", "mortice", "why", "npu", "--load", "--json"))["decisions"]
    assert decision["state"] == "ready", decision
    code = "import mortice; x = mortice.tensor([1.0, 2.0], device='npu'); print((x + x).tolist())"
    assert run("-c", code) == "[2.0, 4.0]\n"
    assert run("-W", "ignore", "-c", "import mortice\n" + NUMBERS) == (
        "[2.0, 3.0]\n[2.0, 3.0]\n[2, 3]\n[2.5, 3.5] mortice.float32\n[6.0, 7.0]\n"
    )
    assert run("-W", "ignore", "-c", "import mortice\n" + TRAINING) == "[0.9, 1.9]\n"
    assert run("-W", "ignore", "-c", CONFORMANCE) == "[]\n"


def test_registering_example_works(plugins: str, tmp_path: Path) -> None:
    (code,) = [
        code
        for code in re.findall(r"```python\n(.*?)```", plugins, re.DOTALL)
        if "plugins.register" in code
    ]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
