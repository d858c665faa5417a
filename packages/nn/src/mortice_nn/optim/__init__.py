"""Optimizers and learning rate schedules; users import it as ``mortice.optim``."""

from mortice_nn.optim import lr_scheduler, swa_utils
from mortice_nn.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from mortice_nn.optim.adaptive import ASGD, Adadelta, Adagrad, RMSprop, Rprop
from mortice_nn.optim.lbfgs import LBFGS
from mortice_nn.optim.optimizer import Optimizer
from mortice_nn.optim.sgd import SGD

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "lr_scheduler",
    "swa_utils",
]


def __getattr__(name: str) -> object:
    """Only what is not there comes here: say what is nearest."""
    from mortice.errors import no_attribute

    raise no_attribute("mortice.optim", name, __all__)
