"""The engine's options, which need no Ray."""

from __future__ import annotations

import importlib.util

import pytest

from mortice.distributed.launch import Job
from mortice.errors import InvalidValue, PluginUnavailable
from mortice_ray.options import Options


def options(nodes: int = 1, **given: str) -> Options:
    return Options.of(Job(("true",), processes=2, nodes=nodes, options=given))


def test_defaults() -> None:
    assert options() == Options()
    assert options(nodes=2).strategy == "STRICT_SPREAD"
    assert options(nodes=2, strategy="pack").strategy == "PACK"


def test_what_ray_reserves() -> None:
    assert options().bundle(4) == {"CPU": 4}
    assert options(cpus="0.5", gpus="1").bundle(4) == {"CPU": 2, "GPU": 4}


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "MORTICE_X", "MINE", "OTHER"):
        monkeypatch.setenv(name, name.lower())
    found = options(env="MINE,ABSENT").variables()
    assert {"PYTHONPATH", "MORTICE_X", "MINE"} <= found.keys()
    assert not {"OTHER", "ABSENT", "PATH"} & found.keys()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"strategy": "heap"}, "STRICT_SPREAD.*'HEAP'"),
        ({"cpus": "many"}, "cpus is a number.*'many'"),
        ({"gpus": "-1"}, "not negative"),
        ({"adress": "here"}, "no option adress; it has address"),
    ],
)
def test_mistakes(given: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidValue, match=text):
        options(**given)


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is there")
def test_without_ray() -> None:
    from mortice._plugins import load

    with pytest.raises(PluginUnavailable, match="pip install ray"):
        load("mortice.launchers", "ray")
