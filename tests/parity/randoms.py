"""Random operators by distribution: our draws against torch's, by mean, spread and shape.

Bits differ by design (mortice draws from Philox by element index), so each case draws many values
from both libraries and compares two-sample Kolmogorov-Smirnov distance and the first moments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from checks import Plan, Result, say
from convert import tensor_from_mortice

import mortice

N = 20_000
Draw = Callable[[Any], Any]


def _probabilities(lib: Any) -> Any:
    return lib.tensor([0.1, 0.4, 0.2, 0.3])


# (operator, case) -> how to draw about N values with the library given.
CASES: dict[tuple[str, str], Draw] = {
    ("rand", "float32"): lambda m: m.rand(N),
    ("rand", "float64"): lambda m: m.rand(N, dtype=m.float64),
    ("rand", "bfloat16"): lambda m: m.rand(N, dtype=m.bfloat16),
    ("randn", "float32"): lambda m: m.randn(N),
    ("randn", "float16"): lambda m: m.randn(N, dtype=m.float16),
    ("rand_like", ""): lambda m: m.rand_like(m.empty(N)),
    ("randn_like", ""): lambda m: m.randn_like(m.empty(N)),
    ("randint", "0..10"): lambda m: m.randint(0, 10, (N,)),
    ("randint", "-5..5 int32"): lambda m: m.randint(-5, 5, (N,), dtype=m.int32),
    ("randint_like", ""): lambda m: m.randint_like(m.empty(N), 3, 9),
    ("randperm", "first of many"): lambda m: m.stack([m.randperm(8)[0] for _ in range(2000)]),
    ("normal", "tensor, number"): lambda m: m.normal(m.full((N,), 2.0), 0.5),
    ("normal", "tensors"): lambda m: m.normal(m.full((N,), 2.0), m.full((N,), 3.0)),
    ("normal", "numbers"): lambda m: m.normal(1.0, 2.0, (N,)),
    ("normal_", ""): lambda m: m.empty(N).normal_(3.0, 0.1),
    ("uniform_", ""): lambda m: m.empty(N).uniform_(-2.0, 5.0),
    ("exponential_", ""): lambda m: m.empty(N).exponential_(1.5),
    ("cauchy_", ""): lambda m: m.empty(N).cauchy_(1.0, 2.0),
    ("log_normal_", ""): lambda m: m.empty(N).log_normal_(0.5, 0.25),
    ("geometric_", ""): lambda m: m.empty(N).geometric_(0.3),
    ("random_", "0..7"): lambda m: m.empty(N).random_(0, 7),
    ("bernoulli", "p tensor"): lambda m: m.bernoulli(m.full((N,), 0.3)),
    ("bernoulli_", "p number"): lambda m: m.empty(N).bernoulli_(0.7),
    ("multinomial", "replacement"): lambda m: m.multinomial(_probabilities(m), N, True),
    ("multinomial", "first without replacement"): lambda m: m.multinomial(
        _probabilities(m).expand(4000, 4), 2, False
    )[:, 0],
    ("dropout", "p 0.3"): lambda m: m.dropout(m.ones(N), 0.3, True),
    ("native_dropout", "p 0.6"): lambda m: m.native_dropout(m.ones(N), 0.6, True)[0],
    ("alpha_dropout", ""): lambda m: m.nn.functional.alpha_dropout(m.ones(N), 0.4, True),
    ("rrelu", "training"): lambda m: m.nn.functional.rrelu(-m.ones(N), 0.1, 0.3, True),
    ("poisson", ""): lambda m: m.poisson(m.full((N,), 4.0)),
    ("binomial", ""): lambda m: m.binomial(m.full((N,), 10.0), m.full((N,), 0.3)),
}


def owner(case: str) -> str:
    return case.rstrip("_")


def ks_distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest distance between two empirical distribution functions."""
    every = torch.cat([a, b]).sort().values
    below_a = torch.searchsorted(a.sort().values, every, right=True) / len(a)
    below_b = torch.searchsorted(b.sort().values, every, right=True) / len(b)
    return float((below_a - below_b).abs().max())


def _rounded(values: torch.Tensor) -> torch.Tensor:
    scale = 10.0 ** (4 - values.abs().clamp(min=1e-30).log10().floor())
    return torch.where(values == 0, values, (values * scale).round() / scale)


def differs(ours: torch.Tensor, theirs: torch.Tensor) -> str | None:
    # Five digits: a constant computed in two ways must not count as two distributions.
    a, b = (_rounded(t.double().flatten()) for t in (ours, theirs))
    if a.shape != b.shape:
        return f"{len(a)} values, expected {len(b)}"
    # 2.2 is the one in 10,000 level for the scaled distance of equal distributions.
    limit = 2.2 * math.sqrt(2 / len(a))
    distance = ks_distance(a, b)
    if distance > limit:
        return (
            f"distributions differ by {distance:.4f} (limit {limit:.4f}); mean {a.mean():.4g} "
            f"and {b.mean():.4g}, std {a.std():.4g} and {b.std():.4g}"
        )
    if len(a) > 2 and a.unique().numel() > 50:
        return _correlated(a)
    return None


def _correlated(a: torch.Tensor) -> str | None:
    """Neighbours must be independent: ranks, so that heavy tails do not matter."""
    rank = a.argsort().argsort().double()
    rank = (rank - rank.mean()) / rank.std()
    lag = float((rank[1:] * rank[:-1]).mean())
    return f"neighbours correlate: {lag:.4f}" if abs(lag) > 5 / math.sqrt(len(a)) else None


def run(names: set[str] | None, plan: Plan) -> Iterator[tuple[str, Result]]:
    for (name, case), draw in CASES.items():
        if names is not None and owner(name) not in names and name not in names:
            continue
        key = f"any random {case or 'default'}"
        plan.begin(key)
        torch.manual_seed(plan.seed)
        theirs = draw(torch)
        try:
            mortice.manual_seed(plan.seed + 1)
            ours = draw(mortice)
            message = differs(tensor_from_mortice(ours), theirs)
            if message is None and str(ours.dtype).split(".")[-1] != str(theirs.dtype)[6:]:
                message = f"dtype {ours.dtype}, expected {theirs.dtype}"
        except Exception as error:
            message = say(error)
        yield name, Result(key, "random", message)
