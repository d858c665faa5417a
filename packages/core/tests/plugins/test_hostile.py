"""Plug-ins that misbehave: each hurts itself alone, and what it did is told.

In each test a healthy device ``good`` stands beside the hostile one, and must go on working.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import pytest

LOAD = """
from mortice import _plugins, errors
try:
    print("loaded", _plugins.load("device", {name!r}).__name__)
except errors.PluginError as error:
    print("state", error.state)
    print(error)
assert _plugins.load("device", "good").__name__ == "Device"
print("good works")
"""


@pytest.fixture
def hostile(site: Any) -> Any:
    """An environment with a healthy device."""
    site.device("good")
    return site


def load(site: Any, name: str = "bad", **extra: str) -> str:
    said = site.run(LOAD.format(name=name), **extra)
    assert "good works" in said
    return said


def listed(site: Any, name: str, *arguments: str) -> str:
    """The line of the list for a name; the healthy device is in the list, too."""
    said = site.cli("list-backends", *arguments)
    lines = [line for line in said.splitlines() if f" {name} " in line]
    assert any(" good " in line for line in said.splitlines())
    assert len(lines) == 1, said
    return lines[0]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ValueError('boom')", "ValueError: boom ("),
        (
            "import not_a_module_anywhere",
            "it imports not_a_module_anywhere, which is not installed",
        ),
        ("import sys; sys.exit(3)", "it called sys.exit(3) while being loaded"),
        ("raise BaseException('rare')", "BaseException: rare"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("def f(:", "SyntaxError: invalid syntax ("),
        ("x = 1\ndef f(:", "acme_bad.py, line 2)"),
        ("def deep(): deep()\ndeep()", "RecursionError"),
    ],
)
def test_import_raises(hostile: Any, source: str, reason: str) -> None:
    hostile.device("bad", source)
    said = load(hostile)
    assert "state broken" in said
    assert reason in said
    assert "device type 'bad' cannot be used: acme-bad 1.0" in said
    assert "(bad = acme_bad in mortice.devices)" in said
    assert "pip install --upgrade --force-reinstall acme-bad" in said
    assert "MORTICE_DISABLE_PLUGINS=acme-bad" in said


def test_exception_without_a_text(hostile: Any) -> None:
    hostile.device("bad", "class E(Exception):\n def __str__(self): raise KeyError\nraise E")
    assert "broken: E: (its text cannot be had: KeyError)" in load(hostile)


def test_endless_text(hostile: Any) -> None:
    hostile.device("bad", "raise ValueError('x' * 10_000_000)")
    assert len(load(hostile)) < 2_000


def test_module_missing(hostile: Any) -> None:
    hostile.add("acme-bad", entries={"mortice.devices": {"bad": "acme_bad"}})
    assert "its own module acme_bad is not there" in load(hostile)


def test_object_missing(hostile: Any) -> None:
    hostile.device("bad", manifest=None)
    info = hostile.path / "acme_bad-1.0.dist-info"
    (info / "entry_points.txt").write_text("[mortice.devices]\nbad = acme_bad:nothing\n")
    assert "has no attribute 'nothing'" in load(hostile)


@pytest.mark.parametrize(
    "value", ["bad:obj with spaces [", "bad mod", "bad:", ":x", "1bad", "a..b", "bad:a:b"]
)
def test_malformed_value(hostile: Any, value: str) -> None:
    hostile.add("acme-bad", entries={"mortice.devices": {"bad": value}})
    said = load(hostile)
    assert f"its entry point bad = {value} is not of the form module[:object]" in said
    assert "broken" in listed(hostile, "bad")


def test_entry_points_not_ini(hostile: Any) -> None:
    hostile.add("acme-bad", entry_points=b'{"mortice.devices": {"bad": "acme_bad"}}\n')
    assert "state not found" in load(hostile)
    said = hostile.cli("doctor", status=1)
    assert "acme_bad-1.0.dist-info" in said
    assert "stands outside any [group]" in said


def test_entry_points_not_text(hostile: Any) -> None:
    hostile.add("acme-bad", entry_points=b"[mortice.devices]\nbad = acme\xff\xfe\n")
    load(hostile)
    assert "is not UTF-8 text (byte 28)" in hostile.cli("doctor", status=1)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_mark(hostile: Any, encoding: str) -> None:
    info = hostile.device("bad")
    (info / "entry_points.txt").write_bytes("[mortice.devices]\nbad = acme_bad\n".encode(encoding))
    assert "loaded Device" in load(hostile)


def test_directory_named_dist_info(hostile: Any) -> None:
    (hostile.path / ".dist-info").mkdir()
    (hostile.path / ".egg-info").mkdir()
    hostile.device("bad")
    assert "loaded Device" in load(hostile)
    assert "has no distribution name" in hostile.cli("doctor", status=1)


def test_no_metadata_file(hostile: Any) -> None:
    info = hostile.device("bad")
    (info / "METADATA").unlink()
    assert "loaded Device" in load(hostile)
    assert "METADATA is missing" in hostile.cli("doctor", status=1)


def test_entry_points_is_a_directory(hostile: Any) -> None:
    info = hostile.device("bad")
    (info / "entry_points.txt").unlink()
    (info / "entry_points.txt").mkdir()
    assert "state not found" in load(hostile)
    assert "entry_points.txt" in hostile.cli("doctor", status=1)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("file", ["entry_points.txt", "METADATA", "extra_metadata/mortice.toml"])
def test_metadata_is_a_pipe(hostile: Any, file: str) -> None:
    info = hostile.device("bad")
    (info / file).unlink()
    os.mkfifo(info / file)
    assert "state not found" in load(hostile)
    assert "it is no plain file" in hostile.cli("doctor", status=1)


def test_endless_metadata(hostile: Any) -> None:
    info = hostile.device("bad")
    with open(info / "entry_points.txt", "r+b") as file:
        file.truncate(1 << 40)
    assert "state not found" in load(hostile)
    assert "it is larger than" in hostile.cli("doctor", status=1)


def test_deeply_nested_manifest(hostile: Any) -> None:
    hostile.device("bad", manifest=f"hook_api = {'[' * 100_000}")
    assert "state broken" in load(hostile)


def test_control_characters_in_names(hostile: Any) -> None:
    hostile.add("acme-bad", entries={"mortice.devices": {"\x1b[2J": "acme_bad"}})
    for command in (["list-backends"], ["why", "acme-bad"], ["plugins"]):
        assert "\x1b" not in hostile.cli(*command)


def test_working_directory_is_gone(hostile: Any) -> None:
    # numpy itself cannot always be imported in such a place
    hostile.run(f"import mortice, os; os.rmdir({str(hostile.cwd)!r}){LOAD.format(name='good')}")


def test_two_distributions_one_name(hostile: Any) -> None:
    hostile.device("bad", dist="acme-one")
    hostile.device("bad", dist="acme-two")
    said = load(hostile)
    assert "state conflict" in said
    assert "acme-one 1.0 and acme-two 1.0 both provide device:bad" in said
    assert "MORTICE_PREFER_PLUGINS=device:bad=acme-" in said
    said = load(hostile, MORTICE_PREFER_PLUGINS="device:bad=acme-two")
    assert "loaded Device" in said
    said = load(hostile, MORTICE_DISABLE_PLUGINS="acme-one")
    assert "loaded Device" in said


def test_two_dist_infos_of_one_distribution(hostile: Any) -> None:
    hostile.device("bad")
    hostile.add(
        "acme-bad",
        "0.9",
        entries={"mortice.devices": {"bad": "gone_module", "older": "gone_module"}},
        record=False,
    )
    assert "loaded Device" in load(hostile)
    assert "state not found" in load(hostile, "older")
    said = hostile.cli("doctor", status=1)
    assert "is a stale second copy; acme_bad-1.0.dist-info is used; delete it" in said


def test_left_over_from_uninstall(hostile: Any) -> None:
    hostile.add("~cme-bad", entries={"mortice.devices": {"bad": "gone_module"}})
    assert "state not found" in load(hostile)
    assert "left over from an interrupted uninstall" in hostile.cli("doctor", status=1)


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need rights there")
def test_directory_linked_twice(hostile: Any) -> None:
    hostile.device("bad")
    link = hostile.root / "site64"
    link.symlink_to(hostile.path)
    hostile.paths.append(link)
    assert "loaded Device" in load(hostile)
    listed(hostile, "bad")  # once


def test_same_distribution_twice_on_the_path(hostile: Any) -> None:
    second = hostile.root / "second"
    hostile.device("bad")
    hostile.device("bad", "raise ValueError('the copy')", folder=second)
    hostile.paths.append(second)
    assert "loaded Device" in load(hostile)
    assert "is hidden by the copy in" in hostile.cli("doctor")


def test_editable_egg_link(hostile: Any) -> None:
    source = hostile.root / "src"
    source.mkdir()
    hostile.device("bad", folder=source)
    (source / "acme_bad-1.0.dist-info").rename(source / "acme_bad.egg-info")
    (source / "acme_bad.egg-info" / "METADATA").rename(source / "acme_bad.egg-info" / "PKG-INFO")
    (hostile.path / "acme-bad.egg-link").write_text(f"{source}\n.")
    hostile.paths.append(source)  # easy-install.pth would
    assert "loaded Device" in load(hostile)
    listed(hostile, "bad")


def test_unpacked_egg(hostile: Any) -> None:
    egg = hostile.root / "acme_bad-1.0-py3.11.egg"
    hostile.device("bad", folder=egg)
    (egg / "acme_bad-1.0.dist-info").rename(egg / "EGG-INFO")
    (egg / "EGG-INFO" / "METADATA").rename(egg / "EGG-INFO" / "PKG-INFO")
    hostile.paths.append(egg)
    assert "loaded Device" in load(hostile)


def test_zip_on_the_path(hostile: Any) -> None:
    import shutil

    folder = hostile.root / "zipped"
    hostile.device("bad", folder=folder)
    archive = shutil.make_archive(str(hostile.root / "bundle"), "zip", folder)
    hostile.paths.append(archive)
    assert "loaded Device" in load(hostile)


def test_custom_finder(hostile: Any) -> None:
    folder = hostile.root / "frozen"
    hostile.device("bad", folder=folder)
    said = hostile.run(
        f"""
        import importlib.metadata, sys
        class Frozen:
            def find_spec(self, name, path=None, target=None):
                return None
            def find_distributions(self, context):
                return importlib.metadata.distributions(path=[{str(folder)!r}])
        class Broken(Frozen):
            def find_distributions(self, context):
                raise RuntimeError("no luck")
        sys.meta_path += [Broken(), Frozen()]
        from mortice import _plugins
        from mortice._plugins import report
        print([e.name for e in _plugins.find("device")])
        print(report.problems())
        assert _plugins.load("device", "good")
        """
    )
    assert "'bad'" in said
    assert "no luck" in said


def test_hook_with_a_foreign_argument(hostile: Any) -> None:
    hostile.add(
        "acme-bad",
        entries={"mortice.devices": {"bad": "acme_bad"}},
        modules={
            "acme_bad.py": """
            import mortice.backend
            @mortice.backend.hookimpl
            def mortice_device(name, generation):
                return int
            """
        },
    )
    said = load(hostile)
    assert "state incompatible" in said
    assert "generation" in said


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "acme_bad has no function mortice_device(name)"),
        ("def mortice_device(name): return int", "is not marked; put @mortice.backend.hookimpl"),
        ("@hookimpl\ndef mortice_device(name): return None", "it provides None, and a class"),
        ("@hookimpl\ndef mortice_device(name): raise KeyError('k')", "KeyError: 'k'"),
        (
            "@hookimpl\ndef mortice_device(name): return int\nmortice_devise = mortice_device",
            "unknown hook 'mortice_devise'",
        ),
    ],
)
def test_bad_hook(hostile: Any, body: str, reason: str) -> None:
    hostile.add(
        "acme-bad",
        entries={"mortice.devices": {"bad": "acme_bad"}},
        modules={"acme_bad.py": f"from mortice.backend import hookimpl\n{body}\n"},
    )
    assert reason in load(hostile)


@pytest.mark.parametrize(
    ("manifest", "state", "reason"),
    [
        ("hook_api = '>=2'", "incompatible", "it is made for hook API >=2, and this mortice has 1"),
        ("hook_api = '<1'", "incompatible", "it is made for hook API <1"),
        ("hook_api = 1", "broken", "write a range such as"),
        ("hook_api", "broken", "is not valid TOML"),
        ("", "broken", "has no hook_api"),
        (
            "hook_api = '>=1'\n[devise.bad]",
            "broken",
            "unknown key 'devise'. Did you mean 'device'?",
        ),
        ("hook_api = '>=1'\n[device.bad]\ntag = []", "broken", "Did you mean 'tags'?"),
        ("hook_api = '>=1'\n[device.bad]\ntags = ['fun']", "broken", "unknown tag 'fun'"),
        (
            "hook_api = '>=1'\n[device.bad]\nneeds = [{file = '/no/such', fix = 'plug it in'}]",
            "unavailable",
            "/no/such does not exist on this machine. plug it in.",
        ),
        (
            "hook_api = '>=1'\n[device.bad]\nneeds = [{library = 'libnosuch.so.9'}]",
            "unavailable",
            "the library libnosuch.so.9 cannot be loaded",
        ),
        (
            "hook_api = '>=1'\n[device.bad]\nneeds = [{module = 'no_such_module'}]",
            "unavailable",
            "the Python module no_such_module is not installed",
        ),
        (
            "hook_api = '>=1'\n[device.bad.options]\nn = {type = 'int', default = 'x'}",
            "broken",
            "default is 'x'; expected int",
        ),
    ],
)
@pytest.mark.parametrize("where", ["extra_metadata/mortice.toml", "/acme_bad/mortice.toml"])
def test_manifest_judged_before_import(
    hostile: Any, manifest: str, state: str, reason: str, where: str
) -> None:
    hostile.add(
        "acme-bad",
        entries={"mortice.devices": {"bad": "acme_bad"}},
        modules={"acme_bad/__init__.py": "print('IMPORTED')"},
        manifest=manifest,
        manifest_at=where,
    )
    said = load(hostile)
    assert f"state {state}" in said
    assert reason in said
    assert "IMPORTED" not in said


def test_unavailable(hostile: Any) -> None:
    hostile.device(
        "bad",
        "from mortice.backend import Unavailable\n"
        "raise Unavailable('no NPU is plugged in', 'Plug one in')\n",
    )
    said = load(hostile)
    assert "state unavailable" in said
    assert "no NPU is plugged in. Plug one in." in said


SEGFAULT = "import ctypes; ctypes.string_at(0)"
EXIT = "import os; os._exit(7)"
ABORT_AMONG_THREADS = """
import os, threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
os.abort()
"""


@pytest.mark.parametrize(
    ("source", "status", "reason"),
    [
        pytest.param(
            SEGFAULT,
            -signal.SIGSEGV if sys.platform != "win32" else 0,
            "SIGSEGV (signal 11), at File",
            marks=pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals"),
        ),
        pytest.param(
            ABORT_AMONG_THREADS,
            -signal.SIGABRT if sys.platform != "win32" else 0,
            'acme_bad.py", line 4 in <module>',
            marks=pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals"),
        ),
        (EXIT, 7, "ended the process with exit status 7"),
    ],
)
def test_crash_at_import(hostile: Any, source: str, status: int, reason: str) -> None:
    hostile.device("bad", source)
    # Listing does not care.
    assert "not loaded" in listed(hostile, "bad")
    # The first process dies ...
    hostile.run(LOAD.format(name="bad"), status=status)
    assert "the last process that loaded it died" in listed(hostile, "bad")
    # ... the second probes, and says what happened; the third believes the probe.
    for _ in range(2):
        said = load(hostile)
        assert "state crashed" in said
        assert reason in said
        assert "mortice plugins --load --refresh" in said
    assert "crashed" in listed(hostile, "bad")
    # A mended version is tried again.
    (hostile.path / "acme_bad-1.0.dist-info" / "x").write_text("")
    hostile.device("bad2", dist="acme-bad2")
    (hostile.path / "acme_bad.py").write_text((hostile.path / "acme_bad2.py").read_text())
    assert "loaded Device" in load(hostile)


def test_crash_found_by_listing_with_load(hostile: Any) -> None:
    hostile.device("bad", EXIT)
    assert "crashed" in listed(hostile, "bad", "--load")
    assert "state crashed" in load(hostile)
    assert "crashed" in listed(hostile, "bad")
    assert "not loaded" in listed(hostile, "bad", "--refresh")


def test_hang_in_a_probe(hostile: Any) -> None:
    hostile.device("bad", "import time; time.sleep(1000)")
    told = "loading it did not end within 1 s"
    assert told in hostile.cli("why", "bad", "--load", MORTICE_PROBE_TIMEOUT="1", status=1)
    # The healthy one has all the time it needs; the other is not waited for again.
    said = hostile.cli("list-backends", "--load", "--kind", "device")
    assert told in said
    assert "ready" in said


def test_hang_in_the_process(hostile: Any) -> None:
    hostile.device("bad", "import time; time.sleep(1000)")
    code = f"from mortice._plugins import manager; manager.HANG_SECONDS = 1\n{LOAD}"
    child = hostile.start("-c", code.format(name="bad"))
    line = child.stderr.readline()
    assert "loading device type 'bad' from acme-bad 1.0" in line
    assert "has taken 1 s" in line
    assert "MORTICE_DISABLE_PLUGINS=acme-bad" in line
    # The user gives up on it; the next process probes first.
    child.send_signal(signal.SIGINT)
    _, rest = child.communicate(timeout=100)
    assert "KeyboardInterrupt" in rest
    said = load(hostile, MORTICE_PROBE_TIMEOUT="1")
    assert "state crashed" in said
    assert "did not end within 1 s" in said


def test_hang_is_named_after_ten_seconds(hostile: Any) -> None:
    from mortice._plugins import manager

    assert manager.HANG_SECONDS == 10.0


def test_interrupt_is_no_state(hostile: Any) -> None:
    hostile.device(
        "bad",
        "import sys\nif not hasattr(sys, 'again'):\n sys.again = 1\n raise KeyboardInterrupt\n",
    )
    said = hostile.run(
        """
        from mortice import _plugins
        try:
            _plugins.load("device", "bad")
        except KeyboardInterrupt:
            print("interrupted")
        print(_plugins.state("device", "bad"), _plugins.load("device", "bad"))
        """
    )
    assert "interrupted\n<Status not loaded> <class" in said


def test_killed_while_loading_is_probed_then_used(hostile: Any) -> None:
    flag = hostile.root / "slow"
    flag.write_text("")
    hostile.device("bad", f"import os, time\nwhile os.path.exists({str(flag)!r}): time.sleep(.05)")
    child = hostile.start("-c", LOAD.format(name="bad"))
    markers = hostile.cache / "plugins"
    deadline = time.monotonic() + 60
    while not [m for m in markers.glob("*/loading/*") if m.suffix != ".new"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.kill()
    child.communicate()
    flag.unlink()
    assert "loaded Device" in load(hostile)
    assert not list(markers.glob("*/loading/*"))


def test_noisy_plugin_does_not_reach_the_list(hostile: Any) -> None:
    hostile.device("bad", "print('NOISE', flush=True)")
    said = hostile.cli("list-backends", "--load", "--json")
    assert "NOISE" not in said


def test_cache_is_not_a_directory(hostile: Any) -> None:
    hostile.cache.write_text("a file")
    assert "loaded Device" in load(hostile, "good")
    assert "kept in memory only" in hostile.cli("doctor", status=1)


@pytest.mark.parametrize("garbage", [b"", b"\x00\xff", b"mortice-index 1\n{}", b"null", b"[]"])
def test_corrupt_index(hostile: Any, garbage: bytes) -> None:
    load(hostile, "good")
    (index,) = hostile.cache.glob("plugins/*/index.json")
    index.write_bytes(garbage)
    load(hostile, "good")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere root can make the directory")
def test_home_that_cannot_be_written(hostile: Any) -> None:
    said = load(hostile, "good", HOME="/proc/nobody", MORTICE_CACHE_DIR="", XDG_CONFIG_HOME="")
    assert "loaded Device" in said
    said = hostile.cli("doctor", status=1, HOME="/proc/nobody", MORTICE_CACHE_DIR="")
    assert "kept in memory only, so each process scans: /proc/nobody/.cache/mortice" in said


def test_many_processes_at_once(hostile: Any) -> None:
    """None of them takes another's marker for a dead one's, which would cost it a probe."""
    hostile.device("bad", "import time; time.sleep(0.2)")
    children = [
        hostile.start("-c", LOAD.format(name="bad"), MORTICE_LOGS="plugins") for _ in range(6)
    ]
    for child in children:
        out, err = child.communicate(timeout=100)
        assert "loaded Device" in out, err
        assert "in a probe" not in err


def test_editable_install_of_today(hostile: Any) -> None:
    """A dist-info without the files, direct_url.json, and the sources elsewhere on the path."""
    source = hostile.root / "src"
    hostile.add(
        "acme-bad",
        entries={"mortice.devices": {"bad": "acme_bad.plugin"}},
        modules={
            "acme_bad/__init__.py": "print('IMPORTED')",
            "acme_bad/plugin.py": "raise SystemExit",
        },
        manifest="hook_api = '>=1'\n[device.bad]\nsummary = 'found beside the code'",
        manifest_at="/acme_bad/mortice.toml",
        folder=source,
    )
    info = source / "acme_bad-1.0.dist-info"
    (info / "RECORD").write_text("acme_bad.pth,,\n")
    (info / "direct_url.json").write_text('{"url": "file:///x", "dir_info": {"editable": true}}')
    info.rename(hostile.path / info.name)
    hostile.paths.append(source)
    said = hostile.cli("list-backends")
    assert "found beside the code" in said
    assert "IMPORTED" not in said
    assert ", editable" in hostile.cli("why", "bad")
    told = load(hostile)
    assert "state broken" in told
    assert "Correct its code and try again" in told
    # Sources change without notice, so a crash is not believed there, but probed anew.
    (source / "acme_bad" / "plugin.py").write_text(EXIT)
    hostile.run(LOAD.format(name="bad"), status=7)
    for _ in range(2):
        assert "state crashed" in load(hostile)
    (source / "acme_bad" / "plugin.py").write_text(
        "import mortice.backend\n@mortice.backend.hookimpl\n"
        "def mortice_device(name): return type('Device', (), {})\n"
    )
    assert "loaded Device" in load(hostile)
