"""Policy: who may be used, who says so, and the lock."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from mortice._plugins.groups import GROUPS


@pytest.fixture
def three(site: Any) -> Any:
    """Devices a, b and c, from acme-a, acme-b and acme-c."""
    for name in "abc":
        site.device(name)
    return site


def usable(site: Any, **extra: str) -> str:
    """The usable ones among a, b, c, as one word."""
    told = json.loads(site.cli("list-backends", "--json", **extra))
    return "".join(
        row["name"]
        for row in told["backends"]
        if row["name"] in "abc" and row["state"] == "not loaded"
    )


def write(site: Any, where: str, text: str) -> Path:
    path = {
        "user": site.home / "config" / "mortice" / "config.toml",
        "system": site.home / "etc" / "mortice" / "config.toml",
        "project": site.cwd / "pyproject.toml",
    }[where]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(("[tool.mortice]\n" if where == "project" else "") + text)
    return path


@pytest.mark.parametrize(
    ("environment", "left"),
    [
        ({}, "abc"),
        ({"MORTICE_PLUGINS": "acme-a"}, "a"),
        ({"MORTICE_PLUGINS": "Acme_A, b"}, "ab"),
        ({"MORTICE_PLUGINS": "device:a,mortice.devices:c"}, "ac"),
        ({"MORTICE_PLUGINS": "compile:a"}, ""),
        ({"MORTICE_PLUGINS": ""}, "abc"),
        ({"MORTICE_DISABLE_PLUGINS": "acme-a"}, "bc"),
        ({"MORTICE_DISABLE_PLUGINS": "device:a,b"}, "c"),
        ({"MORTICE_PLUGINS": "a,b", "MORTICE_DISABLE_PLUGINS": "b"}, "a"),
        ({"MORTICE_PLUGIN_AUTOLOAD": "0"}, ""),
        ({"MORTICE_PLUGIN_AUTOLOAD": "0", "MORTICE_PLUGINS": "b"}, "b"),
    ],
)
def test_environment(three: Any, environment: dict[str, str], left: str) -> None:
    assert usable(three, **environment) == left


def test_layers(three: Any) -> None:
    write(three, "system", "plugins = ['a', 'b']")
    assert usable(three) == "ab"
    write(three, "user", "plugins = ['b', 'c']")
    assert usable(three) == "bc"
    assert usable(three, MORTICE_PLUGINS="a") == "a"
    write(three, "project", "plugins = ['c']")
    assert usable(three) == "c"
    assert usable(three, MORTICE_PLUGINS="a") == ""


def test_project_narrows_only(three: Any) -> None:
    write(three, "user", "plugins = ['a', 'b']\ndisable_plugins = ['b']")
    write(three, "project", "plugins = ['a', 'b', 'c']\ndisable_plugins = ['c']")
    assert usable(three) == "a"
    write(three, "project", "plugin_autoload = true")
    assert usable(three, MORTICE_PLUGIN_AUTOLOAD="0", MORTICE_PLUGINS="c") == "c"
    write(three, "user", "")
    assert usable(three, MORTICE_PLUGIN_AUTOLOAD="0") == ""
    write(three, "project", "plugin_autoload = false")
    assert usable(three) == ""
    write(three, "project", "prefer_plugins = {'device:a' = 'acme-a'}")
    said = three.cli("list-backends", status=2)
    assert "a project may only narrow, so it cannot set 'prefer_plugins'" in said


def test_refusal_names_its_origin(three: Any) -> None:
    path = write(three, "user", "disable_plugins = ['a']")
    said = three.cli("why", "a", status=1)
    assert f"disable_plugins in {path} names 'a'" in said
    assert f"Take 'a' out of disable_plugins in {path}" in said
    path = write(three, "project", "disable_plugins = ['b']")
    said = three.cli("why", "b", status=1)
    assert "disable_plugins in [tool.mortice] of" in said


def test_preference_in_a_file(three: Any) -> None:
    three.device("a", dist="rival")
    assert usable(three) == "bc"
    write(three, "user", "[prefer_plugins]\n'device:a' = 'rival'")
    assert usable(three) == "abc"
    said = three.cli("why", "a")
    assert "device:a: not loaded, chosen" in said
    assert "rival 1.0 is preferred for device:a" in said
    assert "prefers this one to acme-a 1.0" in said
    said = three.cli("why", "a", MORTICE_DISABLE_PLUGINS="rival")
    assert "rival 1.0 provides this name, too, and is not admitted" in said


def test_names_that_match_nothing_are_told(three: Any) -> None:
    said = three.cli(
        "doctor",
        status=1,
        MORTICE_DISABLE_PLUGINS="typo",
        MORTICE_PREFER_PLUGINS="device:a=gone,what=x",
    )
    assert "names 'typo', which matches nothing installed" in said
    assert "prefers 'gone' for device:a, which is not installed" in said
    assert "'what' is not KIND:NAME" in said


# -- the lock -----------------------------------------------------------------------------------


def lock(site: Any, **changes: str) -> Path:
    record = site.path / "acme_a-1.0.dist-info" / "RECORD"
    row = {
        "distribution": "Acme_A",
        "version": "1.0",
        "record_sha256": hashlib.sha256(record.read_bytes()).hexdigest(),
        **changes,
    }
    path = site.root / "lock.json"
    path.write_text(json.dumps({"format": 1, "plugins": [row]}))
    return path


def test_lock(three: Any) -> None:
    path = lock(three)
    assert usable(three, MORTICE_PLUGIN_LOCK=str(path)) == "a"
    said = three.cli("why", "b", status=1, MORTICE_PLUGIN_LOCK=str(path))
    assert f"disabled: the lock {path} does not list it" in said


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": "2.0"}, "lists version 2.0, and 1.0 is installed"),
        ({"record_sha256": "00"}, "its RECORD has the hash"),
    ],
)
def test_lock_mismatch(three: Any, changes: dict[str, str], reason: str) -> None:
    path = lock(three, **changes)
    said = three.cli("why", "a", status=1, MORTICE_PLUGIN_LOCK=str(path))
    assert "device:a: disabled" in said
    assert reason in said


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "plugins": [3]}'])
def test_damaged_lock(three: Any, text: str) -> None:
    path = three.root / "lock.json"
    path.write_text(text)
    said = three.cli("list-backends", status=2, MORTICE_PLUGIN_LOCK=str(path))
    assert "lock.json is damaged" in said
    path.unlink()
    said = three.cli("list-backends", status=2, MORTICE_PLUGIN_LOCK=str(path))
    assert "cannot be read: No such file or directory" in said


# -- names that core has ----------------------------------------------------------------------------

RESERVED = [
    ("mortice.modules", "Tensor", "mortice.Tensor is core's own name"),
    ("mortice.modules", "float32", "mortice.float32 is core's own name"),
    ("mortice.modules", "save", "mortice.save is core's own name"),
    ("mortice.modules", "softmax", "mortice.softmax is core's own name"),
    ("mortice.modules", "Tensor.extra", "mortice.Tensor is core's own name"),
    ("mortice.modules", "fx", "mortice.fx is core's own module"),
    ("mortice.modules", "utils.pytree", "mortice.utils.pytree is core's own module"),
    ("mortice.devices", "meta", "'meta' is core's own device type"),
    ("mortice.operators", "aten", "'aten' is core's own namespace"),
    ("mortice.operators", "prims", "'prims' is core's own namespace"),
    ("mortice.serialization", "cpu", "'cpu' is core's own location tag"),
    ("mortice.serialization", "meta", "'meta' is core's own location tag"),
    ("mortice.commands", "why", "`mortice why` is core's own command"),
    ("mortice.compile_backends", "eager", "the name 'eager' is mortice's own"),
    ("mortice.distributed_backends", "fake", "the name 'fake' is mortice's own"),
    ("mortice.launchers", "local", "the name 'local' is mortice's own"),
]


@pytest.fixture
def greedy(site: Any) -> Any:
    entries: dict[str, dict[str, str]] = {}
    for group, name, _ in RESERVED:
        entries.setdefault(group, {})[name] = "acme_greedy"
    site.add("acme-greedy", entries=entries, modules={"acme_greedy.py": "print('GREEDY')"})
    return site


def test_names_of_core_are_reserved_in_every_group(greedy: Any) -> None:
    """A conflict in lists, in ``why`` and in ``doctor``; never chosen, whatever is preferred."""
    told = json.loads(greedy.cli("list-backends", "--all", "--json"))["backends"]
    mine = {(row["kind"], row["name"]): row for row in told if row["distribution"] == "acme-greedy"}
    doctor = greedy.cli("doctor", status=1)
    assert len(mine) == len(RESERVED)
    kinds = {name: group.kind for name, group in GROUPS.items()}
    for group, name, reason in RESERVED:
        row = mine[kinds[group], name]
        assert (row["state"], row["reason"]) == ("conflict", reason)
        assert reason in doctor
    for kind, name, reason in (
        ("module", "Tensor", "mortice.Tensor is core's own name"),
        ("device", "meta", "'meta' is core's own device type"),
        ("operators", "aten", "'aten' is core's own namespace"),
    ):
        extra = {"MORTICE_PREFER_PLUGINS": f"{kind}:{name}=acme-greedy"}
        (found,) = json.loads(greedy.cli("why", f"{kind}:{name}", "--json", status=1, **extra))[
            "decisions"
        ]
        assert found["state"] == "conflict", found
        assert reason in str(found)


def test_reserved_names_go_on_meaning_what_they_mean(greedy: Any) -> None:
    said = greedy.run(
        """
        import mortice
        assert mortice.Tensor is type(mortice.empty(2, device="meta"))
        assert mortice.softmax(mortice.empty(2, device="meta"), 0).shape == (2,)
        try:
            mortice.ops.aten.does_not_exist
        except AttributeError as error:
            print("no such operator")
        """
    )
    assert said == "no such operator\n"


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        ("device", "meta", "'meta' is core's own device type"),
        ("operators", "prims", "'prims' is core's own namespace"),
        ("serialization", "cpu", "'cpu' is core's own location tag"),
        ("module", "Tensor", "mortice.Tensor is core's own name"),
        ("module", "fft.fft", "mortice.fft is core's own module, and holds no others"),
        ("module", "distributed.all_reduce", "mortice.distributed.all_reduce is core's own name"),
        (
            "module",
            "distributed.all_reduce.fast",
            "mortice.distributed.all_reduce is core's own name",
        ),
        ("module", "fx.GraphModule", "mortice.fx.GraphModule is core's own name"),
        ("module", "utils.rename_privateuse1_backend", "core's own name"),
        ("module", "utils.pytree", "mortice.utils.pytree is core's own module"),
    ],
)
def test_reserved_names_cannot_be_registered(kind: str, name: str, reason: str) -> None:
    import mortice
    from mortice.errors import RegistrationError

    with pytest.raises(RegistrationError, match=reason):
        mortice.plugins.register(kind, name, "acme:thing")


def test_every_name_that_core_has_is_reserved() -> None:
    from mortice._generated.registry import ROWS
    from mortice._plugins.groups import CORE_NAMES
    from mortice._types.device import BUILT_IN

    spaces = {name.partition("::")[0] if "::" in name else "aten" for name in ROWS}
    assert spaces <= set(CORE_NAMES["operators"])
    assert set(CORE_NAMES["device"]) == BUILT_IN - {"cpu"}  # which a package provides
    assert set(CORE_NAMES["serialization"]) == BUILT_IN


def test_a_part_of_a_namespace_of_core_is_free(site: Any) -> None:
    site.add("acme-part", entries={"mortice.operators": {"aten:acme": "acme_part"}})
    told = json.loads(site.cli("list-backends", "--json"))["backends"]
    assert [row["state"] for row in told if row["name"] == "aten:acme"] == ["not loaded"]
