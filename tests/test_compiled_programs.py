"""Programs of the size that people have: compiled, they give eager's results to the last bit.

Each program trains or infers for a few steps and returns all that can be seen of it: outputs,
gradients, parameters, buffers, and a log that the function itself writes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mortice
from mortice import nn, optim
from mortice.nn import functional as F

BACKENDS = ["eager", "aot_eager"]
Wrap = Callable[[Any], Any]


def same(a: Any, b: Any) -> bool:
    """Whether two results are equal to the last bit."""
    if hasattr(a, "_k") and hasattr(b, "_k"):
        x, y = a.detach().numpy(), b.detach().numpy()
        return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and (a == b or (a != a and b != b))


def seen(module: nn.Module, log: list[Any], *results: Any) -> dict[str, Any]:
    grads = {n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None}
    state = {n: x.clone() for n, x in module.state_dict().items()}
    return {"results": list(results), "grads": grads, "state": state, "log": log}


def close(a: Any, b: Any) -> bool:
    """Whether two results are equal but for rounding."""
    if hasattr(a, "_k"):
        return a.shape == b.shape and bool((a.double() - b.double()).abs().max() < 2e-3)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(close, a, b))
    return abs(a - b) < 2e-3 if isinstance(a, float) else a == b


def differences(a: dict[str, Any], b: dict[str, Any], equal: Any = same) -> list[str]:
    found: list[str] = []
    for part, mine in a.items():
        theirs = b[part]
        if isinstance(mine, dict):
            names = sorted({*mine, *theirs})
            found += [
                f"{part}.{name}"
                for name in names
                if name not in mine or name not in theirs or not equal(mine[name], theirs[name])
            ]
        elif not equal(mine, theirs):
            found.append(part)
    return found


# -- programs -----------------------------------------------------------------------------------


def demo() -> Any:
    """examples/demo.py as a module, without its setting of threads."""
    path = Path(__file__).parents[1] / "examples" / "demo.py"
    spec = importlib.util.spec_from_file_location("digits_demo", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    del mortice.config.num_threads
    return module


def digits(wrap: Wrap) -> dict[str, Any]:
    """The convolutional network of the demo: batch norm, dropout, AdamW, a schedule."""
    program = demo()
    model = program.Net()
    compiled = wrap(model)
    data, _ = program.load_digits()
    images, targets = data.tensors
    optimizer = optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=8)
    log: list[Any] = []
    outputs = []
    for step in range(4):
        batch = slice(step * 32, step * 32 + 32)
        optimizer.zero_grad()
        scores = compiled(images[batch])
        loss = F.cross_entropy(scores, targets[batch])
        loss.backward()
        optimizer.step()
        schedule.step()
        log.append((loss.item(), schedule.get_last_lr()[0]))
        outputs.append(scores.detach())
    model.eval()
    with mortice.no_grad():
        outputs.append(compiled(images[:50]))
    return seen(model, log, *outputs)


def transformer(wrap: Wrap) -> dict[str, Any]:
    """Two encoder layers with dropout, padding masked, trained with SGD and momentum."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
    model = nn.TransformerEncoder(layer, 2)
    compiled = wrap(model)
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    outputs = []
    mask = mortice.arange(7).expand(3, 7) >= mortice.tensor([[7], [5], [6]])
    for _ in range(3):
        x = mortice.randn(3, 7, 16)
        optimizer.zero_grad()
        y = compiled(x, src_key_padding_mask=mask)
        y.square().mean().backward()
        optimizer.step()
        outputs.append(y.detach())
    return seen(model, [], *outputs)


class HandWritten(nn.Module):
    """An LSTM cell by hand, and the loop over time in Python."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.x = nn.Linear(inputs, 4 * hidden)
        self.h = nn.Linear(hidden, 4 * hidden, bias=False)

    def forward(self, sequence: mortice.Tensor, log: list[Any]) -> mortice.Tensor:
        h = c = sequence.new_zeros(sequence.shape[1], self.hidden)
        outputs: list[mortice.Tensor] = []
        for step, x in enumerate(sequence):
            i, f, g, o = (self.x(x) + self.h(h)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            log.append((step, tuple(h.shape)))
            outputs.append(h)
        return mortice.stack(outputs)


def lstm(wrap: Wrap) -> dict[str, Any]:
    model = HandWritten(5, 8)
    compiled = wrap(model)
    optimizer = optim.RMSprop(model.parameters(), lr=0.01)
    log: list[Any] = []
    outputs = []
    for length in (6, 6, 3):
        x = mortice.randn(length, 4, 5)
        optimizer.zero_grad()
        y = compiled(x, log)
        (y[-1] - x.sum(0).mean(1, keepdim=True)).pow(2).mean().backward()
        optimizer.step()
        outputs.append(y.detach())
    return seen(model, log, *outputs)


def clipped(wrap: Wrap) -> dict[str, Any]:
    """The whole training step in one function: backward, clipping and Adam included."""
    model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.LayerNorm(12), nn.Linear(12, 3))
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    schedule = optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    log: list[Any] = []

    def step(x: mortice.Tensor, y: mortice.Tensor) -> mortice.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        log.append(norm.item())
        return loss.detach()

    compiled = wrap(step)
    losses = []
    for _ in range(5):
        losses.append(compiled(mortice.randn(8, 6), mortice.randn(8, 3)))
        schedule.step()
    return seen(model, log, *losses)


class EarlyExit(nn.Module):
    """Layers until all rows are sure enough of their answer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.head = nn.Linear(8, 5)
        self.turns: list[int] = []

    def forward(self, x: mortice.Tensor) -> mortice.Tensor:
        for depth, layer in enumerate(self.layers):
            x = x + F.relu(layer(x))
            scores = self.head(x).softmax(-1)
            if scores.max() > 0.9:
                self.turns.append(depth)
                return scores
        self.turns.append(-1)
        return scores


def inference(wrap: Wrap) -> dict[str, Any]:
    model = EarlyExit().eval()
    compiled = wrap(model)
    outputs = []
    with mortice.no_grad():
        for n in (4, 4, 1, 7, 16, 2, 33):
            for scale in (0.1, 1.0, 8.0):
                outputs.append(compiled(mortice.randn(n, 8) * scale))
    assert len(set(model.turns)) > 1
    return seen(model, model.turns, *outputs)


PROGRAMS = [digits, transformer, lstm, clipped, inference]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_compiled_is_eager_to_the_last_bit(program: Any, backend: str) -> None:
    mortice.manual_seed(0)
    wanted = program(lambda model: model)
    mortice.manual_seed(0)
    made: list[Any] = []

    def wrap(model: Any) -> Any:
        made.append(mortice.compile(model, backend=backend))
        return made[-1]

    got = program(wrap)
    assert differences(got, wanted) == []
    compiled = getattr(made[0], "compiled", made[0])
    assert compiled.segments


def one_step_of_digits(wrap: Wrap) -> dict[str, Any]:
    """Gradients of the network: Adam would blow up the roundings of those that are 0 but for them,
    as those of biases before batch norm are."""
    program = demo()
    model = program.Net()
    data, _ = program.load_digits()
    images, targets = data.tensors
    scores = wrap(model)(images[:32])
    F.cross_entropy(scores, targets[:32]).backward()
    return seen(model, [], scores.detach())


@pytest.mark.parametrize("backend", ["aot_eager_decomp_partition", "inductor"])
@pytest.mark.parametrize("program", [one_step_of_digits, transformer, lstm, clipped, inference])
def test_other_operators_change_roundings_only(program: Any, backend: str) -> None:
    mortice.manual_seed(0)
    wanted = program(lambda model: model)
    mortice.manual_seed(0)
    got = program(lambda model: mortice.compile(model, backend=backend))
    assert differences(got, wanted, close) == []
