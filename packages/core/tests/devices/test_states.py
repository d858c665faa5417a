"""A device that cannot be used says which of the reasons it is, and what to type."""

from __future__ import annotations

from typing import Any

import pytest

USE = """
import mortice
for use in (
    lambda: mortice.ones(2, device="tpu"),
    lambda: mortice.ones(2).to("tpu"),
    lambda: mortice.tpu.current_device(),
):
    try:
        use()
    except RuntimeError as error:
        print(type(error).__name__, error)
    else:
        raise SystemExit("it could be used")
print(getattr(mortice, "tpu", None) and mortice.tpu.is_available())
"""

HERE = """
import mortice
raise mortice.backend.Unavailable("no tpu is plugged in: /dev/tpu0 is not there", "modprobe tpu")
"""


def test_without_its_hardware(site: Any) -> None:
    site.device("tpu", HERE)
    *said, available = site.run(USE).splitlines()
    assert available == "False"
    for line in said:
        assert line.startswith("PluginUnavailable ")
        assert "acme-tpu 1.0" in line
        assert "no tpu is plugged in: /dev/tpu0 is not there" in line
        assert "modprobe tpu" in line


@pytest.mark.parametrize("setting", ["", "acme-tpu"])
def test_autocast_without_its_hardware(site: Any, setting: str) -> None:
    """As where it is not installed: a warning, and nothing is lowered."""
    site.device("tpu", HERE)
    said = site.run(
        """
import mortice, warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    with mortice.autocast("tpu"):
        print(mortice.is_autocast_enabled("tpu"))
print(*(w.message for w in told))
""",
        MORTICE_DISABLE_PLUGINS=setting,
    )
    enabled, told = said.splitlines()
    assert enabled == "False"
    assert told.startswith("autocast: no device of type 'tpu' is here. Disabling autocast;")


def test_broken(site: Any) -> None:
    site.device("tpu", "import nothing_of_this_name")
    *said, available = site.run(USE).splitlines()
    assert available == "False"
    for line in said:
        assert line.startswith("PluginBroken ")
        assert "acme-tpu 1.0" in line
        assert "nothing_of_this_name" in line


@pytest.mark.parametrize("setting", ["acme-tpu", "tpu", "device:tpu"])
def test_disabled(site: Any, setting: str) -> None:
    site.device("tpu")
    *said, available = site.run(USE, MORTICE_DISABLE_PLUGINS=setting).splitlines()
    assert available == "False"
    for line in said:
        assert line.startswith("PluginDisabled ")
        assert "acme-tpu 1.0" in line
        assert "MORTICE_DISABLE_PLUGINS" in line


def test_missing(site: Any) -> None:
    site.device("npu")
    said = site.run("""
import mortice
for use in (lambda: mortice.device("tpu"), lambda: mortice.ones(2, device="tpu:0")):
    try:
        use()
    except RuntimeError as error:
        print(type(error).__name__, error)
try:
    mortice.tpu
except AttributeError as error:
    print(error)
""")  # fmt: skip
    first, second, third = said.splitlines()
    assert first == second
    assert "no installed package provides a device of type 'tpu'" in first
    assert "there are: cpu, meta, npu" in first
    assert "`mortice list-backends --kind device --all`" in first
    assert "no attribute 'tpu'" in third


def test_of_the_wrong_class(site: Any) -> None:
    site.device("tpu")
    said = site.run(
        USE.replace('print(getattr(mortice, "tpu", None) and mortice.tpu.is_available())', "")
    )
    assert all("which is no device. Derive it from" in line for line in said.splitlines())
