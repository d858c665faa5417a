"""Checkpoints of models: what core writes and reads of what mortice-nn defines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mortice
from mortice import nn, optim, serialization
from mortice.errors import CheckpointError

FIXTURES = Path(__file__).parent.parent / "packages/core/tests/serialization/fixtures"


def net() -> Any:
    mortice.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)
    )


def test_a_state_dict_fits_a_new_model(tmp_path: Path) -> None:
    first, second = net(), net()
    with mortice.no_grad():
        for p in first.parameters():
            p.add_(1)
    serialization.save(first.state_dict(), tmp_path / "m.pt")
    loaded = serialization.load(tmp_path / "m.pt")
    assert loaded._metadata == first.state_dict()._metadata
    second.load_state_dict(loaded)
    x = mortice.ones(1, 1, 4, 4)
    assert (second(x) == first(x)).all()


def test_a_state_dict_of_pytorch_fits() -> None:
    model = nn.Sequential()
    model.add_module("fc", nn.Linear(3, 2))
    model.add_module("bn", nn.BatchNorm1d(2))
    model.load_state_dict(serialization.load(FIXTURES / "g14_state_dict.pt"))
    assert model.fc.weight.shape == (2, 3)


def test_parameters_come_back_as_parameters(tmp_path: Path) -> None:
    p = nn.Parameter(mortice.ones(2), requires_grad=False)
    p.tag = "kept"
    serialization.save({"p": p, "q": p}, tmp_path / "p.pt")
    loaded = serialization.load(tmp_path / "p.pt")
    assert type(loaded["p"]) is nn.Parameter
    assert loaded["q"] is loaded["p"]
    assert not loaded["p"].requires_grad
    assert loaded["p"].tag == "kept"
    assert type(serialization.load(FIXTURES / "g16_parameter_state.pt")) is nn.Parameter


def test_a_whole_module_of_pytorch_loads_when_marked_safe() -> None:
    path = FIXTURES / "r02_full_module.pt"
    with pytest.raises(CheckpointError, match=r"import mortice\.nn;.*\[mortice\.nn\.Linear\]"):
        serialization.load(path)
    with serialization.safe_globals([nn.Linear]):
        model = serialization.load(path)
    assert type(model) is nn.Linear
    assert model(mortice.ones(1, 2)).shape == (1, 2)
    with pytest.warns(UserWarning, match="can run programs"):
        again = serialization.load(path, weights_only=False)
    assert type(again) is nn.Linear
    assert (again.weight == model.weight).all()


def test_a_whole_module_is_saved_under_the_names_of_pytorch(tmp_path: Path) -> None:
    model, path = net(), tmp_path / "model.pt"
    serialization.save(model, path)
    classes = [nn.Sequential, nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.Flatten, nn.Linear]
    assert serialization.get_unsafe_globals_in_checkpoint(path) == [
        "torch.nn.modules.container.Sequential",
        "torch.nn.modules.conv.Conv2d",
        "torch.nn.modules.batchnorm.BatchNorm2d",
        "torch.nn.modules.activation.ReLU",
        "torch.nn.modules.flatten.Flatten",
        "torch.nn.modules.linear.Linear",
    ]
    with serialization.safe_globals(classes):
        loaded = serialization.load(path)
    x = mortice.ones(1, 1, 4, 4)
    assert (loaded.eval()(x) == model.eval()(x)).all()


def test_optimizers_go_on_where_they_were(tmp_path: Path) -> None:
    def step(model: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        model(mortice.ones(1, 3)).sum().backward()
        optimizer.step()

    def made() -> Any:
        mortice.manual_seed(0)
        model = nn.Linear(3, 2)
        return model, optim.AdamW(model.parameters(), lr=0.1)

    model, optimizer = made()
    step(model, optimizer)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    serialization.save(state, tmp_path / "run.pt")
    step(model, optimizer)
    loaded = serialization.load(tmp_path / "run.pt")
    other, continued = made()
    other.load_state_dict(loaded["model"])
    continued.load_state_dict(loaded["optimizer"])
    step(other, continued)
    assert (other.weight == model.weight).all()


def test_without_nn_a_parameter_is_a_tensor_that_requires_grad() -> None:
    code = (
        "import sys; sys.modules['mortice_nn'] = None; import mortice; "
        "from mortice.serialization import tensors; tensors.parameter_class = lambda: None; "
        f"p = mortice.load({str(FIXTURES / 'g16_parameter_state.pt')!r}); "
        "print(type(p).__name__, p.requires_grad, p.tag)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["Tensor", "True", "x"]


@pytest.mark.parametrize(
    "cls", [cls for cls in vars(nn).values() if isinstance(cls, type) and cls is not nn.Module]
)
def test_every_public_class_is_found_by_the_name_it_is_written_under(cls: type) -> None:
    from mortice.serialization.naming import names_of, ours

    full = names_of(cls)[-1]
    assert full.startswith("torch.nn.")
    assert ours(full) is cls


def test_storages_of_a_device_carry_its_tag_and_come_back_to_it(tmp_path: Path) -> None:
    path = tmp_path / "ref.pt"
    t = mortice.arange(6.0).reshape(2, 3).to("ref")
    serialization.save({"t": t, "row": t[1]}, path)
    assert {row.location for row in serialization.inspect(path).rows} == {"ref:0"}
    loaded = serialization.load(path)
    assert str(loaded["row"].device) == "ref:0"
    assert loaded["row"].cpu().tolist() == [3, 4, 5]
    assert loaded["row"].untyped_storage() is loaded["t"].untyped_storage()
    assert serialization.load(path, "cpu")["row"].tolist() == [3, 4, 5]
    assert serialization.load(path, {"ref:0": "meta"})["row"].is_meta
    moved = serialization.load(FIXTURES / "g10_shared_views.pt", "ref")
    assert str(moved["col"].device) == "ref:0"
    assert moved["col"].cpu().tolist() == [2, 6, 10]


def test_sparse_tensors_of_a_device_convert_on_the_host() -> None:
    loaded = serialization.load(FIXTURES / "g22_sparse_csr.pt", "ref")
    assert str(loaded.device) == "ref:0"
    assert loaded.to_dense().tolist() == [[0, 2], [3, 0]]
