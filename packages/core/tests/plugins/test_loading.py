"""Loading: lazily, once, from any thread, re-entrantly; and registering without a distribution."""

from __future__ import annotations

from typing import Any

import pytest


def test_import_reads_no_metadata_and_imports_no_plugin(site: Any) -> None:
    site.device("good", "print('IMPORTED')")
    said = site.run(
        """
        import os, sys
        import numpy
        before = set(sys.modules)
        listed = []
        real = os.scandir
        os.scandir = lambda *a: listed.append(a) or real(*a)
        import mortice
        new = set(sys.modules) - before
        for name in ("importlib.metadata", "pluggy", "click", "rich", "packaging", "llvmlite",
                     "tomllib", "mortice._plugins.manager", "mortice._plugins.index",
                     "mortice_cpu", "acme_good"):
            assert name not in new, name
        print("listed", listed)
        """
    )
    assert "IMPORTED" not in said
    assert "listed []" in said


@pytest.mark.parametrize("command", ["list-backends", "plugins", "why good", "doctor"])
def test_commands_import_no_plugin(site: Any, command: str) -> None:
    site.device("good", "print('IMPORTED')")
    said = site.cli(*command.split())
    assert "good" in said
    assert "IMPORTED" not in said


def test_listing_functions_import_no_plugin(site: Any) -> None:
    site.device("good", "print('IMPORTED')")
    said = site.run(
        """
        import sys
        from mortice._plugins import find
        from mortice._plugins.report import list_backends, names
        print([row.name for row in list_backends("device")], names("device"))
        assert "importlib.metadata" not in sys.modules
        """
    )
    assert "good" in said
    assert "IMPORTED" not in said


def test_lists_of_one_kind(site: Any) -> None:
    manifest = "hook_api = '>=1'\n[compile.b]\ntags = ['debug']"
    site.add("acme-a", entries={"mortice.compile_backends": {"a": "a"}})
    site.add("acme-b", entries={"mortice.compile_backends": {"b": "b"}}, manifest=manifest)
    site.add("acme-c", entries={"mortice.compile_backends": {"c": "c"}}, manifest="hook_api = '<1'")
    site.add("acme-d", entries={"mortice.distributed_backends": {"d": "d"}})
    said = site.run(
        """
        import mortice
        print([n for n in mortice.compiler.list_backends() if len(n) == 1])
        print([n for n in mortice.compiler.list_backends(None) if len(n) == 1])
        print([n for n in mortice.distributed.list_backends() if len(n) == 1])
        """
    )
    assert said == "['a']\n['a', 'b']\n['d']\n"


def test_one_module_serves_several_names(site: Any) -> None:
    site.add(
        "acme-many",
        entries={
            "mortice.devices": {"a1": "acme_many", "a2": "acme_many"},
            "mortice.compile_backends": {"a3": "acme_many:Hooks"},
        },
        modules={
            "acme_many.py": """
            from mortice.backend import hookimpl
            @hookimpl
            def mortice_device(name):
                return type(name, (), {})
            class Hooks:
                @staticmethod
                @hookimpl
                def mortice_compile_backend():
                    return print
            """
        },
    )
    said = site.run(
        """
        from mortice import _plugins
        print(_plugins.load("device", "a1").__name__, _plugins.load("mortice.devices", "a2").__name__)
        print(_plugins.load("compile", "a3"))
        assert _plugins.load("device", "a1") is _plugins.load("device", "a1")
        """
    )
    assert said == "a1 a2\n<built-in function print>\n"


def test_unknown_names(site: Any) -> None:
    site.device("good")
    said = site.run(
        """
        from mortice import _plugins, errors
        for group, name in [("device", "god"), ("devise", "good"), ("device", "cpux"),
                            ("mortice.device", "x")]:
            try:
                _plugins.load(group, name)
            except errors.PluginNotFound as error:
                print(error)
        print(_plugins.state("device", "zzz").state)
        """
    )
    assert "no device type 'god' is installed. Did you mean 'good'?" in said
    assert "no kind of plug-in called 'devise'. Did you mean 'device'?" in said
    assert "Did you mean 'mortice.devices'?" in said
    assert said.endswith("not found\n")


def test_operator_parts(site: Any) -> None:
    body = """
    from mortice.backend import hookimpl
    @hookimpl
    def mortice_operators(name):
        return [__name__, name]
    """
    group = "mortice.operators"
    site.add("acme-a", entries={group: {"acme": "acme_a"}}, modules={"acme_a.py": body})
    site.add("acme-b", entries={group: {"acme:part": "acme_b"}}, modules={"acme_b.py": body})
    site.add("acme-c", entries={group: {"acme:part": "acme_c"}}, modules={"acme_c.py": body})
    site.add(
        "acme-d",
        entries={group: {"acme:npu": "acme_d"}},
        modules={"acme_d.py": body},
        manifest="hook_api = '>=1'\n[operators.'acme:npu']\ndevices = ['npu']",
    )
    said = site.run(
        """
        from mortice import _plugins
        for device in (None, "npu", "gpu"):
            print([_plugins.load_entry(e) for e in _plugins.operator_parts("acme", device)])
        print(len(_plugins.operator_parts("", "npu")), len(_plugins.operator_parts("other")))
        """
    )
    assert said.splitlines() == [
        "[['acme_a', 'acme'], ['acme_b', 'acme:part'], ['acme_c', 'acme:part']]",
        "[['acme_d', 'acme:npu']]",
        "[]",
        "1 0",
    ]


def test_disabled_part_is_not_loaded(site: Any) -> None:
    site.add("acme-a", entries={"mortice.operators": {"acme": "acme_a"}})
    said = site.run(
        """
        from mortice import _plugins, errors
        (entry,) = _plugins.operator_parts("acme")
        try:
            _plugins.load_entry(entry)
        except errors.PluginDisabled as error:
            print(error)
        """,
        MORTICE_DISABLE_PLUGINS="acme",
    )
    assert "MORTICE_DISABLE_PLUGINS in the environment names 'acme'" in said


def test_options(site: Any) -> None:
    site.add(
        "acme-x",
        entries={"mortice.compile_backends": {"x": "acme_x"}},
        manifest="""
        hook_api = ">=1"
        [compile.x.options]
        level = {type = "int", default = 2, choices = [1, 2, 3], doc = "effort"}
        fast = {type = "bool", default = false}
        """,
    )
    (site.home / "config" / "mortice").mkdir(parents=True)
    (site.home / "config" / "mortice" / "config.toml").write_text(
        '[options."compile:x"]\nfast = true\n'
    )
    said = site.run(
        """
        from mortice import _plugins, errors
        print(_plugins.options("compile", "x", {"level": 3}))
        for given in ({"levle": 1}, {"level": 9}, {"level": "1"}, {"fast": 1}, {"level": True}):
            try:
                print(_plugins.options("compile", "x", given))
            except errors.ConfigError as error:
                print(error)
        """
    ).splitlines()
    assert said[0] == "{'level': 3, 'fast': True}"
    assert "'levle' of compile:x is not declared in its manifest. Did you mean 'level'?" in said[1]
    assert "is 9; expected one of 1, 2, 3" in said[2]
    assert "is '1'; expected int" in said[3]
    assert "is 1; expected bool" in said[4]
    assert "is True; expected int" in said[5]


# -- without a distribution ---------------------------------------------------------------------


def test_register(site: Any) -> None:
    site.device("good")
    said = site.run(
        """
        import types, mortice
        import mortice.plugins as plugins
        from mortice import _plugins, errors
        from mortice.backend import hookimpl

        @plugins.register("device", "npu", summary="mine")
        class Npu: pass

        assert _plugins.load("device", "npu") is Npu
        holder = types.SimpleNamespace(mortice_device=hookimpl(lambda name: Npu))
        plugins.register("device", "via_hook", holder)
        assert _plugins.load("device", "via_hook") is Npu
        plugins.register("device", "by_name", "collections:OrderedDict")
        print(_plugins.load("device", "by_name"))

        for name in ("npu", "good"):
            try:
                plugins.register("device", name, int)
            except errors.RegistrationError as error:
                print(error)
        plugins.register("device", "good", int, replace=True)
        assert _plugins.load("device", "good") is int
        states = {r.source: r.state for r in mortice.list_backends("device") if r.name == "good"}
        assert states == {"registered": "ready", "installed": "disabled"}, states
        plugins.unregister("device", "good")
        assert _plugins.load("device", "good").__name__ == "Device"
        plugins.unregister("device", "npu")
        assert plugins.state("device", "npu").state == "not found"
        for wrong in (("device", "npu"), ("device", "via_hok")):
            try:
                plugins.unregister(*wrong)
            except errors.RegistrationError as error:
                print(error)
        for target in ("a b", ""):
            try:
                plugins.register("device", "x", target)
                print(_plugins.load("device", "x"))
            except errors.MorticeError as error:
                print(error)
        """
    )
    assert "<class 'collections.OrderedDict'>" in said
    assert "device type 'npu' is there already: device:npu (registered in this process)" in said
    assert "device type 'good' is there already: acme-good 1.0" in said
    assert "no device type 'npu' was registered in this process." in said
    assert "Did you mean 'via_hook'?" in said
    assert "'a b' is not of the form module[:object]." in said
    assert "'' is not of the form module[:object]." in said


def test_registered_needs_no_admission(site: Any) -> None:
    said = site.run(
        """
        import mortice.plugins as plugins
        from mortice import _plugins
        plugins.register("device", "npu", int)
        print(_plugins.load("device", "npu"))
        """,
        MORTICE_PLUGIN_AUTOLOAD="0",
        MORTICE_PLUGINS="other",
    )
    assert "int" in said


def test_registered_obeys_the_deny_list(site: Any) -> None:
    said = site.run(
        """
        import mortice.plugins as plugins
        plugins.register("device", "npu", int)
        print(plugins.state("device", "npu"))
        """,
        MORTICE_DISABLE_PLUGINS="device:npu",
    )
    assert "disabled" in said


# -- listeners ----------------------------------------------------------------------------------

LISTENER = """
from mortice.backend import hookimpl
@hookimpl
def mortice_plugin_loaded(kind, name, distribution, seconds):
    print("event", kind, name, distribution, seconds > 0)
    if name == "trouble":
        raise RuntimeError("listener failed")
"""


def test_listener(site: Any) -> None:
    site.device("good")
    site.device("trouble")
    site.add(
        "acme-ear",
        entries={"mortice.listeners": {"ear": "acme_ear"}},
        modules={"acme_ear.py": LISTENER},
    )
    code = """
    from mortice import _plugins
    _plugins.load("device", "good")
    print(_plugins.load("device", "trouble").__name__)
    """
    assert site.run(code) == "Device\n"
    assert "disabled" in site.cli("list-backends", "--kind", "listener")
    said = site.run(code, MORTICE_LISTENERS="ear")
    assert "event device good acme-good True" in said
    assert "Device" in said
    assert "listener acme-ear 1.0" in said
    assert "listener failed" in said


def test_broken_listener_hurts_only_itself(site: Any) -> None:
    site.device("good")
    site.add("acme-ear", entries={"mortice.listeners": {"ear": "gone"}})
    said = site.run(
        "from mortice import _plugins; print(_plugins.load('device', 'good'))",
        MORTICE_LISTENERS="ear,missing",
    )
    assert "Device" in said
    assert "its own module gone is not there" in said
    assert "no listener 'missing' is installed" in said


def test_a_listener_that_loads_a_plugin_hears_the_others(site: Any) -> None:
    site.device("good")
    site.device("inner")
    loads = "from mortice import _plugins\n_plugins.load('device', 'inner')\n"
    for name, text in (("ear", loads + LISTENER), ("late", LISTENER)):
        site.add(
            f"acme-{name}",
            entries={"mortice.listeners": {name: f"acme_{name}"}},
            modules={f"acme_{name}.py": text},
        )
    said = site.run(
        "from mortice import _plugins; _plugins.load('device', 'good')",
        MORTICE_LISTENERS="ear,late",
    )
    assert said.count("event device inner") == 1  # the second, loaded for it; the first was not yet
    assert said.count("event device good") == 2


def test_listing_looks_at_the_path_once(site: Any) -> None:
    for number in range(5):
        site.device(f"d{number}")
    said = site.cli("list-backends", "--kind", "device", MORTICE_LOGS="plugins=debug")
    # for the list, damaged metadata, and names in policy; not for each row
    assert said.count(f"scanning {site.path}\n") <= 3


def test_device_whose_runtime_cannot_be_made(site: Any) -> None:
    """Hardware is often looked for when the runtime is made, after the class was loaded."""
    site.device("bad")
    (site.path / "acme_bad.py").write_text(
        "import mortice.backend\n"
        "class Device(mortice.backend.DeviceRuntime):\n"
        "    def __init__(self):\n"
        "        raise mortice.backend.Unavailable('no NPU is plugged in', 'Plug one in')\n"
        "@mortice.backend.hookimpl\ndef mortice_device(name): return Device\n"
    )
    said = site.run(
        """
        import mortice
        for _ in range(2):
            try:
                mortice.tensor([1.0], device="bad")
            except mortice.errors.PluginUnavailable as error:
                print(error)
        """
    )
    assert said.count("device type 'bad' cannot be used: acme-bad 1.0") == 2
    assert said.count("is unavailable: no NPU is plugged in. Plug one in.") == 2
    assert "unavailable: no NPU" not in site.cli("list-backends")
    assert "no NPU is plugged in" in site.cli("list-backends", "--load")


def test_broken_part_takes_no_other_with_it(site: Any) -> None:
    group = "mortice.operators"
    good = "from mortice.backend import hookimpl\n@hookimpl\ndef mortice_operators(): return 1\n"
    site.add("acme-a", entries={group: {"acme": "gone"}})
    site.add("acme-b", entries={group: {"acme:b": "acme_b"}}, modules={"acme_b.py": good})
    site.add(
        "acme-c",
        entries={group: {"acme:c": "gone"}},
        manifest="hook_api = '>=1'\n[operators.'acme:c']\ndevices = ['d']",
    )
    site.device("d")
    said = site.run(
        """
        import mortice
        from mortice import _plugins
        print([e.state for e in _plugins.load_operator_parts("acme")])
        print([e.state for e in _plugins.load_operator_parts("", "d")])
        print(_plugins.load("operators", "acme:b"))
        try:
            mortice.ops.acme.thing
        except mortice.errors.PluginBroken as error:
            print(error)
        """
    )
    assert said.startswith("['broken']\n['broken']\n1\n")
    assert "its own module gone is not there" in said


def test_retry_after_mending(site: Any) -> None:
    site.device("late", "import acme_missing")
    said = site.run(
        f"""
        import pathlib, mortice
        from mortice import _plugins
        def use():
            try:
                return _plugins.load("device", "late").__name__
            except mortice.errors.PluginBroken as error:
                return error.state
        print(use(), use(), mortice.plugins.retry("device", "other"))
        pathlib.Path({str(site.path)!r}, "acme_missing.py").write_text("")
        print(use(), mortice.plugins.retry("device", "late"))
        import importlib; importlib.invalidate_caches()  # it is not our module
        print(use(), mortice.plugins.retry("device", "late"), use())
        """
    )
    assert said == "broken broken False\nbroken True\nDevice False Device\n"


def test_installed_while_the_process_runs(site: Any) -> None:
    said = site.run(
        f"""
        import pathlib, mortice
        from mortice import _plugins
        assert _plugins.state("device", "new").state == "not found"
        try:
            import acme_new
        except ImportError:
            pass
        path = pathlib.Path({str(site.path)!r})
        info = path / "acme_new-1.0.dist-info"
        (path / "acme_new.py").write_text(
            "import mortice.backend\\n@mortice.backend.hookimpl\\n"
            "def mortice_device(name): return int\\n"
        )
        info.mkdir()
        (info / "METADATA").write_text("Name: acme-new\\nVersion: 1.0")
        (info / "entry_points.txt").write_text("[mortice.devices]\\nnew = acme_new")
        print(_plugins.load("device", "new"))
        """
    )
    assert said == "<class 'int'>\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("device", "x", 3), "device type 'x': found 3, and a class is expected"),
        (("module", "x", int), "and a module is expected"),
        (("command", "x", int), "and a click command is expected"),
        (("module", "errors", pytest), "mortice.errors is core's own module"),
        (("module", "_x", pytest), "mortice._x is core's own module"),
        (("command", "doctor", "a:b"), "`mortice doctor` is core's own command"),
        (("device", " x", int), "' x' is no usable name"),
    ],
)
def test_registration_refused(arguments: tuple[str, str, Any], reason: str) -> None:
    from mortice.errors import RegistrationError
    from mortice.plugins import register

    with pytest.raises(RegistrationError) as caught:
        register(*arguments)
    assert reason in str(caught.value)


def test_a_device_that_is_none(site: Any) -> None:
    site.device("bare")
    said = site.run(
        "import mortice\ntry: mortice.ones(2, device='bare')\nexcept mortice.errors.DeviceError as e: print(e)"
    )
    assert "acme_bare.Device, which is no device. Derive it from" in said


def test_a_device_without_a_method_that_core_needs(site: Any) -> None:
    said = site.run(
        """
        import mortice
        @mortice.plugins.register("device", "half")
        class Half(mortice.backend.DeviceRuntime):
            def count(self):
                return 1
        try:
            mortice.ones(2, device="half")
        except NotImplementedError as error:
            print(error)
        """
    )
    assert "Half has no method allocate, which core needs of every device" in said


def test_the_warning_about_a_fallback_points_at_the_users_line(site: Any) -> None:
    site.device("good")
    said = site.run(
        """
        import mortice, warnings
        @mortice.plugins.register("device", "npu")
        class Npu(mortice.backend.DeviceRuntime):
            def count(self):
                return 1
            def allocate(self, nbytes, index):
                return bytearray(nbytes)
            def copy_in(self, buffer, offset, data):
                buffer[offset : offset + data.nbytes] = data.cast("B")
            def copy_out(self, buffer, offset, data):
                data.cast("B")[:] = buffer[offset : offset + data.nbytes]
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            x = mortice.ones(2, device="npu", requires_grad=True)
            (x * 2).sum()
            mortice.ones(2, 2, 2).T
        print([(w.filename, str(w.message)[:30]) for w in seen])
        assert len(seen) >= 3 and {w.filename for w in seen} == {"<string>"}
        """
    )
    assert "aten::mul" in said


@pytest.mark.parametrize("where", ["at import", "when it is made"])
def test_a_bad_setting_is_no_state_of_the_plugin(site: Any, where: str) -> None:
    read = "from mortice import config; config.num_threads"
    if where == "at import":
        site.device("good", read)
    else:
        site.add(
            "acme-good",
            entries={"mortice.devices": {"good": "acme_good"}},
            modules={
                "acme_good.py": f"""
                import mortice.backend
                class Device:
                    def __init__(self):
                        {read}
                @mortice.backend.hookimpl
                def mortice_device(name):
                    return Device
                """
            },
        )
    said = site.run(
        """
        import os
        from mortice import _plugins, config
        from mortice.errors import ConfigError
        for _ in range(2):
            try:
                _plugins.make("device", "good")
            except ConfigError as error:
                print(error)
        print(_plugins.state("device", "good").state in ("ready", "not loaded"))
        os.environ["MORTICE_NUM_THREADS"] = "4"
        config.reload()
        print(type(_plugins.make("device", "good")).__name__)
        """,
        MORTICE_NUM_THREADS="four",
    )
    bad = "MORTICE_NUM_THREADS is 'four', which is not usable: expected a whole number"
    assert said.splitlines() == [bad, bad, "True", "Device"]
    said = site.cli("why", "good", "--load", status=1, MORTICE_NUM_THREADS="four")
    assert "unavailable" in said
    assert "Correct that setting" in said
    assert "broken" not in said
    assert "ready" in site.cli("why", "good", "--load")
