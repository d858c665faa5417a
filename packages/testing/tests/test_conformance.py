"""The kit on the devices that are always there: it passes on them, and catches what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import mortice
from mortice.testing.conformance import DeviceTests, cases, counts, measure, measure_all
from mortice_testing.devices import RefDevice


class TestCpu(DeviceTests):
    device = "cpu"
    fallbacks = 0


class TestRef(DeviceTests):
    device = "ref"


class TestNull(DeviceTests):
    device = "null"
    fallbacks = 1  # equal returns no tensor, so that no kernel is asked for


class Wrong(RefDevice):
    """Adds wrongly, and looks at the host's copy when it multiplies."""

    def kernel(self, op: str, dtypes: Any) -> Any:
        found = super().kernel(op, dtypes)
        if found is None or op not in ("add.Tensor", "mul.Tensor"):
            return found

        def add(*arguments: Any) -> None:
            found(*arguments)
            out = arguments[-1]
            out.buffer.value[3] ^= 1  # of an exponent

        def multiply(*arguments: Any) -> None:
            data = bytearray(4)
            self.copy_out(arguments[0].buffer.value, 0, memoryview(data))
            found(*arguments)

        return add if op == "add.Tensor" else multiply


@pytest.fixture
def wrong() -> Iterator[str]:
    mortice.plugins.register("device", "wrong", Wrong, tags=["debug"], replace=True)
    yield "wrong"
    mortice.plugins.unregister("device", "wrong")


def test_it_catches_a_wrong_device(wrong: str) -> None:
    outcome = measure("pointwise", "add", wrong)
    assert outcome.how == "failed"
    assert "differ" in outcome.told
    assert measure("pointwise", "sub", wrong).how == "native"
    assert measure("pointwise", "erf", wrong) == ("pointwise", "erf", "fallback", "aten::erf")

    class Tests(DeviceTests):
        device = wrong
        fallbacks = 3

    with pytest.raises(AssertionError, match="pointwise: mul"):
        Tests().test_nothing_leaves_it_silently()
    with pytest.raises(AssertionError, match="differ"):
        Tests().test_operators("pointwise", "add")
    with pytest.raises(AssertionError, match="pointwise: sin"):
        Tests().test_fallbacks_are_as_few_as_promised()


def test_counts_add_up() -> None:
    outcomes = measure_all("ref")
    total = sum(counts(outcomes).values(), start=type(counts(outcomes)["views"])())
    assert total.total() == len(cases()) == len(outcomes)
    assert total["failed"] == 0
    assert total["native"] >= 33


def test_command(wrong: str) -> None:
    import json

    from click.testing import CliRunner

    from mortice_testing.conformance.command import command

    said = CliRunner().invoke(command, ["cpu", "null"])
    assert said.exit_code == 0
    head, *rows = (line.split() for line in said.output.splitlines())
    assert head == ["family", "cases", "cpu", "null"]
    assert rows[-1][:2] == ["all", str(len(cases()))]
    marked = CliRunner().invoke(command, ["ref", "--markdown"])
    assert "| family | cases | ref |" in marked.output
    assert "- `ref` falls back at: `" in marked.output
    told = json.loads(CliRunner().invoke(command, ["null", "--json"]).output)
    assert {one["how"] for one in told["null"]} == {"native", "fallback"}
    failing = CliRunner().invoke(command, [wrong])
    assert failing.exit_code == 1
    assert "FAILED on wrong, pointwise: add: " in failing.output
    absent = CliRunner().invoke(command, ["nowhere"])
    assert absent.exit_code == 2
    assert "'nowhere'" in absent.output
