"""Learning rate schedules: call ``step()`` after the optimizer's, once an epoch (or a batch).

Most compute the next rate from the present one, so that schedules can be chained.
"""

from __future__ import annotations

from typing import Any

from mortice_nn.optim.schedules.base import (
    ChainedScheduler,
    LRScheduler,
    SequentialLR,
)
from mortice_nn.optim.schedules.closed import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from mortice_nn.optim.schedules.cyclic import CyclicLR, OneCycleLR
from mortice_nn.optim.schedules.plateau import ReduceLROnPlateau

# The name before LRScheduler was public.
_LRScheduler: Any = LRScheduler

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]


def __getattr__(name: str) -> object:
    """Only what is not there comes here: say what is nearest."""
    from mortice.errors import no_attribute

    raise no_attribute("mortice.optim.lr_scheduler", name, __all__)
