"""Containers of node arguments, which may not be changed behind the graph's back."""

from __future__ import annotations

from typing import Any, NoReturn

from mortice._base.errors import InvalidState


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise InvalidState(
        f"the {type(self).__name__} is an argument of a graph's node and cannot be changed in "
        "place: copy it, change the copy and assign node.args or node.kwargs."
    )


class ImmutableList(list[Any]):
    """A list among a node's arguments."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse  # pyright: ignore[reportAssignmentType]
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(tuple(self))

    def __reduce__(self) -> Any:
        return ImmutableList, (tuple(self),)


class ImmutableDict(dict[Any, Any]):
    """A dict among a node's arguments, or its kwargs."""

    __setitem__ = __delitem__ = __ior__ = _refuse  # pyright: ignore[reportAssignmentType]
    pop = popitem = clear = update = setdefault = _refuse  # pyright: ignore[reportAssignmentType]

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        return ImmutableDict, (dict(self),)
