"""The names of one file, resolved: format's own, the user's safe ones, and those refused."""

from __future__ import annotations

from mortice.serialization import formats, safe
from mortice.serialization.rebuild import CONSTANTS, RULES, STORAGES, TENSOR_CLASSES, no_call
from mortice.serialization.specs import Global, Spec
from mortice.serialization.unpickler import Unpickler

# Names that PyTorch's writer uses and this reader knows but cannot make: why, and what to do.
_KNOWN_NOT_MADE = {
    "torch._utils._rebuild_wrapper_subclass": "a wrapper subclass; save what it wraps",
    "torch._utils._rebuild_device_tensor_from_numpy": "pickled numpy data; save it from the CPU",
    "torch._utils._rebuild_xla_tensor": "pickled numpy data; save it from the CPU",
    "torch.storage.TypedStorage": "a storage without a dtype; save the tensor",
}


class Names:
    """Resolves the names of one file; remembers all it saw, and which of them are not safe.

    With ``collect`` an unsafe name is kept as data, so that the whole file can be inspected.
    """

    __slots__ = ("_known", "collect", "seen", "unsafe")

    def __init__(self, collect: bool = False) -> None:
        self.collect = collect
        self.seen: list[str] = []
        self.unsafe: list[str] = []
        self._known: dict[str, Spec] = {}

    def find(self, u: Unpickler, module: str, name: str) -> Spec:
        """What ``module.name`` stands for. Raises CheckpointError if it is not safe."""
        full = ".".join(formats.python3_name(module, name))
        found = self._known.get(full)
        if found is None:
            found = self._known[full] = self._look_up(u, full)
            self.seen.append(full)
        return found

    def _look_up(self, u: Unpickler, full: str) -> Spec:
        at = u.at - u.start
        known = CONSTANTS.get(full) or STORAGES.get(full)
        if known is not None:
            return known
        rule = RULES.get(full)
        if rule is not None:
            return Global(full, at, rule)
        if full in TENSOR_CLASSES:
            return Global(full, at, no_call)
        blocked = formats.is_blocked(full)
        if not blocked:
            target = safe.targets().get(full)
            if target is not None:
                return Global(full, at, target=target[0])
        self.unsafe.append(full)
        if self.collect:
            return Global(full, at)
        if blocked:
            raise u.refuse(
                f"the file names {full}, which can run programs",
                "It is made to attack whoever loads it. Do not load it in any other way.",
            )
        if full in _KNOWN_NOT_MADE:
            raise u.refuse(f"{full} is not supported", f"It is {_KNOWN_NOT_MADE[full]}.")
        raise u.refuse(
            f"the file wants {full}, which is not among the safe globals", safe.paste_hint(full)
        )
