"""PyTorch's names that are not here: docs/pytorch.md and the errors say the same."""

import importlib
import re
from pathlib import Path

import pytest

import mortice
from mortice._base.absent import ABSENT, no_attribute
from mortice.errors import UnknownName

PAGE = Path(__file__).resolve().parents[4] / "docs" / "pytorch.md"


def test_the_page_has_the_table():
    rows = re.findall(
        r"^\| `torch\.([\w.]+)` \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    told = {name: instead for name, instead in rows if name in ABSENT}
    assert told == ABSENT
    section = PAGE.read_text(encoding="utf-8").partition("| not here | instead |")[2]
    assert re.findall(r"^\| `torch\.([\w.]+)`", section, re.MULTILINE) == list(ABSENT)


@pytest.mark.parametrize("name", ABSENT)
def test_the_error_says_what_to_use(name):
    where, _, last = name.rpartition(".")
    module = importlib.import_module(f"mortice.{where}") if where else mortice
    with pytest.raises(UnknownName) as caught:
        getattr(module, last)
    assert str(caught.value).endswith(f" PyTorch's torch.{name} is not here: {ABSENT[name]}.")
    assert not hasattr(module, last)


@pytest.mark.parametrize("name", ["jit", "utils.checkpoint", "distributed.fsdp", "cuda.amp"])
def test_an_import_says_it_too(name):
    with pytest.raises(ModuleNotFoundError, match=re.escape(ABSENT[name])):
        importlib.import_module(f"mortice.{name}")


@pytest.mark.parametrize(
    ("module", "name", "meant"),
    [
        ("distributed", "all_reduc", "all_reduce"),
        ("linalg", "solv", "solve"),
        ("special", "erff", "erf"),
        ("cpu", "is_availabel", "is_available"),
    ],
)
def test_a_misspelt_name_of_a_module(module, name, meant):
    with pytest.raises(UnknownName, match=f"has no attribute '{name}'. Did you mean '{meant}'?"):
        getattr(importlib.import_module(f"mortice.{module}"), name)


def test_special_names_get_no_advice():
    assert str(no_attribute("mortice.x", "__all", ["__all__"])) == (
        "module 'mortice.x' has no attribute '__all'."
    )


def test_a_namespace_that_nobody_provides():
    with pytest.raises(UnknownName, match="no installed package provides operators called atenn::"):
        mortice.ops.atenn.add
    with pytest.raises(UnknownName, match="Did you mean 'aten'"):
        mortice.ops.atenn.add
    assert not hasattr(mortice.ops.atenn, "add")
