"""Looking at and steering the recorded graph: saved-tensor hooks, anomaly mode, nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mortice._autograd.node import Leaf, Node
from mortice._base.errors import AutogradError
from mortice._dispatch.state import THREAD, refresh

__all__ = [
    "Leaf",
    "Node",
    "detect_anomaly",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "save_on_cpu",
    "saved_tensors_hooks",
    "set_detect_anomaly",
]


class saved_tensors_hooks:
    """Within, every tensor saved for backward is ``pack_hook(tensor)``, unpacked when needed."""

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        self.hooks = (pack_hook, unpack_hook)

    def __enter__(self) -> None:
        refusal: str | None = getattr(THREAD, "refuse_saved_hooks", None)
        if refusal is not None:
            raise AutogradError(refusal)
        THREAD.saved_hooks.append(self.hooks)
        refresh()

    def __exit__(self, *exc: object) -> None:
        THREAD.saved_hooks.pop()
        refresh()


class save_on_cpu(saved_tensors_hooks):
    """Within, tensors saved for backward wait on the CPU."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Any) -> Any:
            return tensor.device, tensor.detach().to("cpu", copy=True)

        super().__init__(pack, lambda packed: packed[1].to(packed[0]))


class disable_saved_tensors_hooks:
    """Within, ``saved_tensors_hooks`` raises ``error_message``."""

    def __init__(self, error_message: str) -> None:
        self.error_message = error_message

    def __enter__(self) -> None:
        self.previous: str | None = getattr(THREAD, "refuse_saved_hooks", None)
        THREAD.__dict__["refuse_saved_hooks"] = self.error_message

    def __exit__(self, *exc: object) -> None:
        THREAD.__dict__["refuse_saved_hooks"] = self.previous


class set_detect_anomaly:
    """``set_detect_anomaly(mode)`` acts at once, and restores when used as a context manager.

    In anomaly mode each node keeps the traceback of its forward call, shown when its backward
    fails, and a NaN in a gradient is an error that names the node.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.previous = THREAD.anomaly
        THREAD.anomaly = bool(mode)
        refresh()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        THREAD.anomaly = self.previous
        refresh()


class detect_anomaly:
    """Context manager that turns anomaly mode on."""

    def __init__(self, check_nan: bool = True) -> None:
        self.previous = False

    def __enter__(self) -> None:
        self.previous = THREAD.anomaly
        THREAD.anomaly = True
        refresh()

    def __exit__(self, *exc: object) -> None:
        THREAD.anomaly = self.previous
        refresh()


def get_gradient_edge(tensor: Any) -> tuple[Node, int]:
    """(node, output number) that a tensor's gradient flows to."""
    if not tensor.requires_grad:
        raise AutogradError("It is not possible to get the gradient edge for a Tensor that does "
                            "not require gradients.")  # fmt: skip
    return tensor._g.node, tensor._g.number
