"""The names that checkpoints use for things of mortice, and back.

A file names PyTorch's modules, so that either library reads it. What mortice-nn defines goes by the
name of its counterpart: its own module path where that is PyTorch's too, else by the table here.
"""

from __future__ import annotations

from typing import Any

# our module prefix -> PyTorch's
_PREFIXES = (
    ("mortice_nn.optim.", "torch.optim."),
    ("mortice_nn.data.", "torch.utils.data."),
    ("mortice_nn.", "torch.nn."),
)

# PyTorch's module -> the classes of it that mortice-nn keeps in a module of another name
_ELSEWHERE = {
    "torch.nn.modules.batchnorm": "BatchNorm1d BatchNorm2d BatchNorm3d",
    "torch.nn.modules.instancenorm": "InstanceNorm1d InstanceNorm2d InstanceNorm3d",
    "torch.nn.modules.channelshuffle": "ChannelShuffle",
    "torch.nn.modules.padding": (
        "CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d "
        "ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d "
        "ReplicationPad3d ZeroPad1d ZeroPad2d ZeroPad3d"
    ),
    "torch.nn.modules.pixelshuffle": "PixelShuffle PixelUnshuffle",
    "torch.nn.modules.upsampling": "Upsample UpsamplingBilinear2d UpsamplingNearest2d",
    "torch.nn.modules.sparse": "Embedding EmbeddingBag",
    "torch.nn.modules.flatten": "Flatten Unflatten",
    "torch.nn.modules.fold": "Fold Unfold",
    "torch.nn.modules.rnn": "GRUCell LSTMCell RNNCell RNNCellBase",
    "torch.nn.modules.activation": "MultiheadAttention",
    "torch.optim.asgd": "ASGD",
    "torch.optim.adadelta": "Adadelta",
    "torch.optim.adagrad": "Adagrad",
    "torch.optim.rmsprop": "RMSprop",
    "torch.optim.rprop": "Rprop",
    "torch.optim.adamw": "AdamW",
    "torch.optim.adamax": "Adamax",
    "torch.optim.nadam": "NAdam",
    "torch.optim.radam": "RAdam",
    "torch.optim.lr_scheduler": (
        "ChainedScheduler LRScheduler SequentialLR ConstantLR CosineAnnealingLR "
        "CosineAnnealingWarmRestarts ExponentialLR LambdaLR LinearLR MultiStepLR MultiplicativeLR "
        "PolynomialLR StepLR CyclicLR OneCycleLR ReduceLROnPlateau"
    ),
}
_MODULE_OF = {name: module for module, names in _ELSEWHERE.items() for name in names.split()}

# PyTorch's prefix -> the module of ours that has all public names under it
_PUBLIC = (
    ("torch.optim.lr_scheduler", "mortice.optim.lr_scheduler"),
    ("torch.optim.", "mortice.optim"),
    ("torch.nn.", "mortice.nn"),
)


def names_of(item: Any) -> list[str]:
    """Every full name by which a file may mean the function or class ``item``."""
    module = getattr(item, "__module__", None)
    name = getattr(item, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return []
    names = [f"{module}.{name}"]
    foreign = torch_module(module, name)
    if foreign is not None:
        names.append(f"{foreign}.{name}")
    return names


def torch_module(module: str, name: str) -> str | None:
    """PyTorch's module for something of ours, or None where there is none."""
    if not module.startswith("mortice_nn."):
        return None
    listed = _MODULE_OF.get(name)
    if listed is not None:
        return listed
    dotted = module + "."
    for ours, theirs in _PREFIXES:
        if dotted.startswith(ours):
            return (theirs + dotted[len(ours) :]).rstrip(".")
    return None


def ours(full: str) -> Any:
    """What stands here for ``full``, a name of PyTorch's: the object, or None."""
    import importlib

    name = full.rpartition(".")[2]
    for prefix, public in _PUBLIC:
        if not full.startswith(prefix):
            continue
        try:
            found = getattr(importlib.import_module(public), name, None)
        except ModuleNotFoundError:  # mortice-nn is not installed
            return None
        return found if found is not None and full in names_of(found) else None
    return None
