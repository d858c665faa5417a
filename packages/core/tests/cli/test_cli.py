"""The ``mortice`` command: on a terminal, in a pipe, as JSON; exit statuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest


@pytest.fixture
def shop(site: Any) -> Any:
    """Some plug-ins in different states."""
    site.device("good", manifest="hook_api = '>=1'\n[device.good]\nsummary = 'a fine device'")
    site.device("old", manifest="hook_api = '<1'")
    site.device("trial", manifest="hook_api = '>=1'\n[device.trial]\ntags = ['experimental']")
    site.add(
        "acme-cmd",
        entries={"mortice.commands": {"shine": "acme_cmd:shine", "rust": "gone:gone"}},
        modules={
            "acme_cmd.py": """
            import click
            print("IMPORTED")
            @click.command(help="Polish it.")
            @click.option("--times", default=1)
            def shine(times):
                click.echo("shine " * times)
            """
        },
        manifest="hook_api = '>=1'\n[command.shine]\nsummary = 'Polish it.'",
    )
    return site


def test_list_in_a_pipe(shop: Any) -> None:
    lines = shop.cli("list-backends", "--kind", "device").splitlines()
    assert lines[0].split() == ["KIND", "NAME", "STATE", "FROM", "NOTE"]
    rows = {line.split()[1]: line for line in lines[1:]}
    assert "trial" not in rows
    assert "\x1b" not in "".join(lines)
    column = lines[0].index("STATE")
    assert rows["good"][column:].startswith("not loaded")
    assert rows["good"][lines[0].index("FROM") :].split("  ", 1)[0] == "acme-good 1.0"
    assert rows["good"][lines[0].index("NOTE") :] == "a fine device"
    assert rows["old"][column:].startswith("incompatible")
    assert rows["old"].endswith(
        "it is made for hook API <1, and this mortice has 1; pip install --upgrade acme-old"
    )
    assert "trial" in shop.cli("list-backends", "--all")


def test_list_as_json(shop: Any) -> None:
    told = json.loads(shop.cli("list-backends", "--json", "--all"))
    assert told["format"] == 1
    rows = {row["name"]: row for row in told["backends"]}
    assert rows["trial"]["tags"] == ["experimental"]
    assert rows["good"]["distribution"] == "acme-good"
    assert rows["good"]["location"].endswith("acme_good-1.0.dist-info")
    assert rows["old"]["fix"] == "pip install --upgrade acme-old"


def test_list_with_load(shop: Any) -> None:
    told = json.loads(shop.cli("list-backends", "--json", "--load", "--kind", "device"))
    rows = {row["name"]: row for row in told["backends"]}
    assert rows["good"]["state"] == "ready"
    assert "loaded in a child process" in rows["good"]["reason"]
    assert "ready when probed" in shop.cli("why", "good")


def test_plugins(shop: Any) -> None:
    said = shop.cli("plugins")
    line = next(line for line in said.splitlines() if "acme-cmd" in line)
    assert "command:rust, command:shine" in line
    told = json.loads(shop.cli("plugins", "--json"))
    rows = {row["distribution"]: row for row in told["plugins"]}
    assert rows["acme-old"]["state"] == "incompatible"
    assert rows["acme-old"]["version"] == "1.0"


def test_why(shop: Any) -> None:
    for name in ("good", "device:good", "acme-good"):
        said = shop.cli("why", name)
        assert said.startswith("device:good: not loaded, chosen\n")
        assert "acme-good 1.0 (good = acme_good in mortice.devices)" in said
        assert "hook API  fits >=1" in said
    said = shop.cli("why", "old", status=1)
    assert "stopped   later checks were not made" in said
    assert "mend      pip install --upgrade acme-old" in said
    told = json.loads(shop.cli("why", "good", "--json"))
    (decision,) = told["decisions"]
    assert decision["used"] is True
    assert decision["steps"][0]["check"] == "found"
    said = shop.cli("why", "goood", status=2)
    assert said == "mortice: Nothing installed is called 'goood'. Did you mean 'good'?\n"
    assert "ready" in shop.cli("why", "good", "--load")


def test_why_a_conflict(shop: Any) -> None:
    shop.device("good", dist="rival")
    said = shop.cli("why", "good", status=1)
    assert said.count("acme-good 1.0 and rival 1.0 both provide device:good") == 4
    assert "MORTICE_PREFER_PLUGINS=device:good=rival" in said


def test_doctor(shop: Any) -> None:
    said = shop.cli("doctor", status=1)
    assert "problem" in said
    told = json.loads(shop.cli("doctor", "--json", status=1))
    problems = [one for one in told["findings"] if one["state"] == "problem"]
    assert [one["subject"] for one in problems] == ["device:old"]


def test_doctor_goes_on_after_a_bad_config(shop: Any) -> None:
    said = shop.cli("doctor", status=1, MORTICE_PLUGIN_AUTOLOAD="maybe")
    assert "MORTICE_PLUGIN_AUTOLOAD is 'maybe'" in said
    assert "numpy" in said


def test_doctor_tells_what_a_manifest_describes_in_vain(site: Any) -> None:
    site.device("npu", manifest="hook_api = '>=1'\n[device.npv]\nsummary = 'misspelt'")
    told = site.cli("doctor", status=1)
    assert "its manifest describes device:npv, which is none of its entries" in told
    assert "Did you mean 'device:npu'?" in told


def test_misspelt_setting_in_a_file(shop: Any, tmp_path: Any) -> None:
    (tmp_path / "mortice").mkdir()
    (tmp_path / "mortice" / "config.toml").write_text("falback = 'warn'")
    where = {"XDG_CONFIG_HOME": str(tmp_path), "APPDATA": str(tmp_path)}
    told = shop.cli("list-backends", status=2, **where)
    assert "there is no setting 'falback'. Did you mean 'fallback'?" in told
    told = shop.cli("--help", **where)
    assert "list-backends" in told
    assert "Commands of plug-ins cannot be listed" in told


def test_doctor_notes_a_failure_of_before(site: Any) -> None:
    site.device("bad", "import sys; sys.exit(3)")
    assert "problem  device:bad" in site.cli("doctor", "--load", status=1)
    said = site.cli("doctor")
    assert "note     device:bad" in said or "note   device:bad" in said
    assert "it called sys.exit(3) while being loaded when probed" in said


def test_doctor_tells_listeners_that_are_not_there(shop: Any) -> None:
    told = shop.cli("doctor", status=1, MORTICE_LISTENERS="tracr")
    assert "MORTICE_LISTENERS in the environment names 'tracr'" in told


def test_doctor_is_content(site: Any) -> None:
    site.device("good")
    site.cli("doctor")


def test_third_party_command(shop: Any) -> None:
    said = shop.cli("--help")
    assert "shine" in said
    assert "Polish it." in said
    assert "IMPORTED" not in said
    assert "shine shine" in shop.cli("shine", "--times", "2")
    said = shop.cli("rust", status=1)
    assert said.startswith("mortice: command 'rust' cannot be used: acme-cmd 1.0")


def test_usage_errors(shop: Any) -> None:
    said = shop.cli("lst-backends", status=2)
    assert "There is no command 'lst-backends'. Did you mean 'list-backends'?" in said
    shop.cli("list-backends", "--kind", "devise", status=2)
    shop.cli("why", status=2)
    said = shop.cli("list-backends", status=2, MORTICE_PLUGIN_AUTOLOAD="maybe")
    assert said.startswith("mortice: MORTICE_PLUGIN_AUTOLOAD is 'maybe'")
    assert "Traceback" not in said


def test_version(shop: Any) -> None:
    from mortice import __version__

    assert shop.cli("--version") == f"mortice {__version__}\n"


def test_text_that_the_pipe_cannot_hold(shop: Any) -> None:
    shop.device("uni", manifest="hook_api = '>=1'\n[device.uni]\nsummary = \"caf\\u00e9\\nx\"")
    said = shop.cli("list-backends", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert "caf\\xe9 x" in said


def test_reader_that_goes_away(shop: Any) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "mortice", "list-backends", "--all"],
        env=shop.environment(),
        cwd=shop.cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    with child.stderr as stream:
        assert b"Traceback" not in stream.read()
    child.wait(100)


@pytest.mark.skipif(sys.platform == "win32", reason="pty is POSIX")
def test_list_on_a_terminal(shop: Any) -> None:
    said = on_terminal(shop, "list-backends", "--all")
    assert "\x1b[" in said
    assert "good" in said
    assert "─" in said
    plain = on_terminal(shop, "list-backends", NO_COLOR="1")
    assert "\x1b[3" not in plain
    assert "incompatible" in plain


@pytest.mark.skipif(sys.platform == "win32", reason="pty is POSIX")
def test_control_characters_do_not_reach_the_terminal(shop: Any) -> None:
    manifest = 'hook_api = ">=1"\n[device.evil]\nsummary = "\\u001b[2Jgone"'
    shop.device("evil", manifest=manifest)
    said = on_terminal(shop, "list-backends")
    assert "\x1b[2J" not in said
    assert "?[2Jgone" in said


def on_terminal(site: Any, *arguments: str, **extra: str) -> str:
    import pty

    main, child_end = pty.openpty()
    environment = site.environment(TERM="xterm-256color", COLUMNS="160", LANG="C.UTF-8", **extra)
    child = subprocess.Popen(
        [sys.executable, "-m", "mortice", *arguments],
        env=environment,
        cwd=site.cwd,
        stdin=subprocess.DEVNULL,
        stdout=child_end,
        stderr=child_end,
    )
    os.close(child_end)
    said = b""
    while True:
        try:
            data = os.read(main, 65536)
        except OSError:  # how Linux reports that the other end was closed
            break
        if not data:
            break
        said += data
    os.close(main)
    assert child.wait(100) == 0, said
    return said.decode()


def test_names_of_core_commands_are_reserved(shop: Any) -> None:
    from mortice._plugins.groups import CORE_COMMANDS
    from mortice.cli.root import COMMANDS

    assert tuple(COMMANDS) == CORE_COMMANDS
    shop.add("acme-doc", entries={"mortice.commands": {"doctor": "gone"}})
    said = shop.cli("why", "command:doctor", status=1)
    assert "conflict: `mortice doctor` is core's own command" in said


def test_doctor_tells_of_files_that_two_distributions_own(site: Any) -> None:
    for name in ("acme-mpi", "other-mpi"):
        info = site.add(name, modules={"lib/libmpi.so": "", f"{name.replace('-', '_')}.py": ""})
        assert (info / "RECORD").exists()
    out = site.cli("doctor", status=1)
    assert "acme-mpi and other-mpi" in out
    assert "libmpi.so" in out
    assert "installed last" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("goood", "add"), "no installed package provides a device of type 'goood'"),
        (("meta", "sofmax"), "operator sofmax does not exist."),
        (("meta", "add", "--dtype", "float99"), "there is no dtype 'float99'."),
        (("goood",), "Nothing installed is called 'goood'."),
    ],
)
def test_an_unknown_name_is_a_wrong_question(
    shop: Any, arguments: tuple[str, ...], said: str
) -> None:
    assert shop.cli("why", *arguments, status=2).startswith(f"mortice: {said}")


def test_a_device_that_cannot_be_asked_is_none(shop: Any) -> None:
    shop.device("sick", "raise RuntimeError('no water')")
    said = shop.cli("why", "sick", "add", status=1)
    assert said.startswith("mortice: device type 'sick' cannot be used")


# -- settings that are wrong ---------------------------------------------------------------------


def findings(site: Any, *arguments: str, **extra: str) -> list[dict[str, str]]:
    told = json.loads(site.cli("doctor", "--json", *arguments, status=1, **extra))
    return told["findings"]


def problems(found: list[dict[str, str]]) -> list[str]:
    return [one["finding"] for one in found if one["state"] == "problem"]


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("MORTICE_PLUGIN_AUTOLOAD", "maybe", "MORTICE_PLUGIN_AUTOLOAD is 'maybe'"),
        ("MORTICE_PREFER_PLUGINS", "device:good", "MORTICE_PREFER_PLUGINS is 'device:good'"),
        ("MORTICE_NUM_THREADS", "four", "MORTICE_NUM_THREADS is 'four'"),
        ("MORTICE_FALBACK", "warn", "MORTICE_FALBACK is not known. Did you mean MORTICE_FALLBACK?"),
        ("MORTICE_GOOD_TRAC", "1", "MORTICE_GOOD_TRAC is not known. Did you mean MORTICE_GOOD_TRACE?"),
        ("MORTICE_PLUGIN_LOCK", "/no/such/lock", "the plug-in lock /no/such/lock"),
        ("MORTICE_PLUGINS", "goood,good", "names 'goood', which matches nothing installed. Did you mean 'good'?"),
        ("MORTICE_LISTENERS", "tracr", "names 'tracr', and no listener installed is called so."),
        ("MORTICE_PREFER_PLUGINS", "devise:good=x", "'devise:good' is not KIND:NAME. Did you mean 'device'?"),
        ("MORTICE_PREFER_PLUGINS", "device:good=acme-god", "Did you mean 'acme-good'?"),
        ("MORTICE_ACCELERATOR", "goood", "names 'goood', and no device installed is called so. Did you mean 'good'?"),
    ],
)  # fmt: skip
def test_doctor_tells_a_bad_setting_once(site: Any, variable: str, value: str, said: str) -> None:
    site.device("good", manifest="hook_api = '>=1'\n[variables]\nMORTICE_GOOD_TRACE = '1: loud'")
    found = findings(site, "--load", **{variable: value})
    (problem,) = problems(found)
    assert said in problem
    assert "device:good" in [one["subject"] for one in found]


def test_doctor_shows_the_variables_of_plugins(site: Any) -> None:
    site.device("good", manifest="hook_api = '>=1'\n[variables]\nMORTICE_GOOD_TRACE = '1: loud'")
    told = json.loads(site.cli("doctor", "--json", MORTICE_GOOD_TRACE="1", MORTICE_OTHER="x"))
    notes = {one["subject"]: one["finding"] for one in told["findings"] if one["state"] == "note"}
    assert notes["MORTICE_GOOD_TRACE"] == "'1', for acme-good 1.0: 1: loud"
    assert notes["MORTICE_OTHER"] == "is no setting, and no plug-in installed declares it"


TYPED = """hook_api = '>=1'
[variables]
MORTICE_GOOD_QUEUES = {type = "int", doc = "queues per device"}
MORTICE_GOOD_TRACE = {type = "bool", doc = "be loud"}
"""


def test_a_value_that_is_not_of_a_variables_type_is_refused(site: Any) -> None:
    site.device("good", manifest=TYPED)
    code = "from mortice import _plugins; print(_plugins.load('device', 'good').__name__)"
    for queues, trace in (("12", "1"), ("", "off"), ("0", " Yes ")):
        found = site.run(code, MORTICE_GOOD_QUEUES=queues, MORTICE_GOOD_TRACE=trace)
        assert found == "Device\n"
    for name, value, wanted in (
        ("QUEUES", "abc", "expected a whole number"),
        ("QUEUES", "-1", "expected a whole number of at least 0"),
        ("QUEUES", "1.5", "expected a whole number"),
        ("TRACE", "maybe", "expected 1 or 0"),
    ):
        said = site.run(code, status=1, **{f"MORTICE_GOOD_{name}": value})
        assert f"MORTICE_GOOD_{name} is {value!r}, which is not usable: {wanted}" in said
        assert "It is of acme-good 1.0: " in said
        (problem,) = problems(findings(site, **{f"MORTICE_GOOD_{name}": value}))
        assert wanted in problem


def test_a_misspelt_variable_of_a_plugin_is_refused(site: Any) -> None:
    site.device("good", manifest="hook_api = '>=1'\n[variables]\nMORTICE_GOOD_TRACE = '1: loud'")
    code = "from mortice import _plugins; print(_plugins.load('device', 'good').__name__)"
    assert site.run(code, MORTICE_GOOD_TRACE="1") == "Device\n"
    said = site.run(code, status=1, MORTICE_GOOD_TRAC="1")
    assert "MORTICE_GOOD_TRAC is not known. Did you mean MORTICE_GOOD_TRACE?" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[options."device:god"]\na = 1', "'device:god', which is not installed. Did you mean 'device:good'?"),
        ('[options."device:good"]\nstreamz = 1', "is not declared in its manifest. Did you mean 'streams'?"),
        ('[options."device:good"]\nstreams = "a"', "'streams' of device:good is 'a'; expected int"),
        ('accelerator = "god"', "no device installed is called so. Did you mean 'good'?"),
        ('falback = "warn"', "there is no setting 'falback'. Did you mean 'fallback'?"),
    ],
)  # fmt: skip
def test_doctor_reads_the_config_file(site: Any, text: str, said: str) -> None:
    site.device(
        "good",
        manifest="hook_api = '>=1'\n[device.good.options]\nstreams = {type = 'int', default = 4}",
    )
    folder = site.home / "config" / "mortice"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)
    found = findings(site)
    (problem,) = problems(found)
    assert said in problem
    assert "config.toml" in problem
    assert "device:good" in [one["subject"] for one in found]


def test_options_that_fit_are_fine(site: Any) -> None:
    site.device(
        "good",
        manifest="hook_api = '>=1'\n[device.good.options]\nstreams = {type = 'int', default = 4}",
    )
    folder = site.home / "config" / "mortice"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        'accelerator = "good"\n[options."device:good"]\nstreams = 2'
    )
    site.cli("doctor")


def test_a_misspelt_group_is_told(site: Any) -> None:
    site.add("b-grp", entries={"mortice.device": {"b": "b"}})
    what = "[mortice.device] is no group we know, so its 'b' is not used. Did you mean 'mortice.devices'?"
    assert what in site.cli("list-backends")
    said = site.cli("why", "b-grp", status=2)
    assert f"mortice: b-grp is installed, and nothing of it can be used: {what}" in said
