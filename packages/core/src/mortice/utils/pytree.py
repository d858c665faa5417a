"""Nested containers as trees: taking them apart into leaves and putting them together again.

The names are those of PyTorch's pytree. Tuples, lists, dicts, named tuples, ``OrderedDict``,
``defaultdict``, ``deque`` and dataclasses are containers; everything else is a leaf. Other classes
are registered with ``register_pytree_node``.
"""

from __future__ import annotations

import dataclasses
import operator
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from mortice._base.errors import InvalidValue, RegistrationError

__all__ = [
    "GetAttrKey",
    "MappingKey",
    "SequenceKey",
    "TreeSpec",
    "arg_tree_leaves",
    "keystr",
    "register_pytree_node",
    "tree_all",
    "tree_all_only",
    "tree_any",
    "tree_any_only",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_iter",
    "tree_leaves",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_map_with_path",
    "tree_structure",
    "tree_unflatten",
]

IsLeaf = Callable[[Any], bool]
#: An instance -> (its children, what else is needed to make it again).
Flatten = Callable[[Any], "tuple[Sequence[Any], Any]"]
Unflatten = Callable[[Iterable[Any], Any], Any]
Keys = Callable[[Any], Sequence[Any]]


# -- where a leaf lies ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """Position in a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@dataclasses.dataclass(frozen=True)
class MappingKey:
    """Key of a mapping."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """Name of a field."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


def keystr(path: Iterable[Any]) -> str:
    """``["a"][0].weight`` for the path of a leaf."""
    return "".join(map(str, path))


# -- the containers ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Container:
    flatten: Flatten
    unflatten: Unflatten
    keys: Keys


def _positions(value: Any) -> list[SequenceKey]:
    return [SequenceKey(i) for i in range(len(value))]


def _mapping_keys(value: Any) -> list[MappingKey]:
    return [MappingKey(key) for key in value]


def _field_keys(value: Any) -> list[GetAttrKey]:
    return [GetAttrKey(name) for name in value._fields]


def _mapping(value: Any) -> tuple[list[Any], Any]:
    return list(value.values()), tuple(value)


def _default_mapping(value: Any) -> tuple[list[Any], Any]:
    return list(value.values()), (value.default_factory, tuple(value))


_CONTAINERS: dict[type, _Container] = {
    tuple: _Container(lambda x: (x, None), lambda items, _: tuple(items), _positions),
    list: _Container(lambda x: (x, None), lambda items, _: list(items), _positions),
    dict: _Container(_mapping, lambda items, keys: dict(zip(keys, items)), _mapping_keys),
    OrderedDict: _Container(
        _mapping, lambda items, keys: OrderedDict(zip(keys, items)), _mapping_keys
    ),
    defaultdict: _Container(
        _default_mapping,
        lambda items, context: defaultdict(context[0], zip(context[1], items)),
        _mapping_keys,
    ),
    deque: _Container(
        lambda x: (list(x), x.maxlen), lambda items, length: deque(items, length), _positions
    ),
}


def _class_of(value: object) -> Any:
    return value.__class__


def _named_tuple(value: Any) -> tuple[Any, Any]:
    return value, _class_of(value)


_NAMED_TUPLE = _Container(_named_tuple, lambda items, cls: cls._make(items), _field_keys)


def _fields_of(value: Any) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(value) if hasattr(value, f.name))


def _make_dataclass(items: Iterable[Any], context: Any) -> Any:
    # Not by calling the class: __init__ and __post_init__ may do more than keep the fields.
    cls, names = context
    made = object.__new__(cls)
    for name, value in zip(names, items):
        object.__setattr__(made, name, value)
    return made


def _flatten_dataclass(value: Any) -> tuple[list[Any], Any]:
    names = _fields_of(value)
    return [getattr(value, name) for name in names], (type(value), names)


_DATACLASS = _Container(
    _flatten_dataclass, _make_dataclass, lambda x: [GetAttrKey(n) for n in _fields_of(x)]
)


def _container(cls: Any) -> _Container | None:
    found = _CONTAINERS.get(cls)
    if found is not None:
        return found
    if hasattr(cls, "_fields") and issubclass(cls, tuple):
        return _NAMED_TUPLE
    return _DATACLASS if dataclasses.is_dataclass(cls) else None


def register_pytree_node(
    cls: type,
    flatten_fn: Flatten,
    unflatten_fn: Unflatten,
    *,
    flatten_with_keys_fn: Callable[[Any], tuple[Sequence[tuple[Any, Any]], Any]] | None = None,
) -> None:
    """Make instances of ``cls`` containers.

    ``flatten_fn(x)`` gives (children, context), ``unflatten_fn(children, context)`` the instance
    again; the context must be comparable. Raises RegistrationError if ``cls`` is registered.
    """
    if cls in _CONTAINERS:
        raise RegistrationError(f"{cls.__qualname__} is already registered as a pytree node.")

    def keys(value: Any) -> Sequence[Any]:
        if flatten_with_keys_fn is not None:
            return [key for key, _ in flatten_with_keys_fn(value)[0]]
        return [SequenceKey(i) for i in range(len(flatten_fn(value)[0]))]

    _CONTAINERS[cls] = _Container(flatten_fn, unflatten_fn, keys)


# -- structures ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, repr=False)
class TreeSpec:
    """The structure of a tree: ``type`` is None for a leaf."""

    type: type | None
    context: Any
    children: tuple[TreeSpec, ...]
    num_leaves: int

    def is_leaf(self) -> bool:
        return self.type is None

    @property
    def num_children(self) -> int:
        return len(self.children)

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        return tree_unflatten(leaves, self)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The sub-trees of ``tree`` at the places of this structure's leaves."""
        found: list[Any] = []
        _flatten_up_to(self, tree, found)
        return found

    def __repr__(self) -> str:
        if self.type is None:
            return "*"
        inner = ", ".join(map(repr, self.children))
        return f"TreeSpec({self.type.__name__}, {self.context}, [{inner}])"


LEAF = TreeSpec(None, None, (), 1)


def _flatten_up_to(spec: TreeSpec, tree: Any, found: list[Any]) -> None:
    if spec.type is None:
        found.append(tree)
        return
    container = _container(type(tree))
    if type(tree) is not spec.type or container is None:
        raise InvalidValue(f"expected a {spec.type.__name__} but found a {type(tree).__name__}")
    items, context = container.flatten(tree)
    if len(items) != len(spec.children) or context != spec.context:
        raise InvalidValue(
            f"expected {spec.type.__name__} with {len(spec.children)} items and context "
            f"{spec.context!r}, but found {len(items)} items and context {context!r}"
        )
    for child, item in zip(spec.children, items):
        _flatten_up_to(child, item, found)


def _flatten(tree: Any, leaves: list[Any], is_leaf: IsLeaf | None) -> TreeSpec:
    container = _container(type(tree))
    if container is None or (is_leaf is not None and is_leaf(tree)):
        leaves.append(tree)
        return LEAF
    items, context = container.flatten(tree)
    before = len(leaves)
    children = tuple(_flatten(item, leaves, is_leaf) for item in items)
    return TreeSpec(_class_of(tree), context, children, len(leaves) - before)


def tree_flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves from left to right, and the structure."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves, is_leaf)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree of a structure with these leaves; InvalidValue if their number is not the structure's."""
    given = list(leaves)
    if len(given) != treespec.num_leaves:
        raise InvalidValue(
            f"the structure has {treespec.num_leaves} leaves, but {len(given)} were given: {treespec}"
        )
    return _unflatten(iter(given), treespec)


def _unflatten(leaves: Any, spec: TreeSpec) -> Any:
    if spec.type is None:
        return next(leaves)
    container = _container(spec.type)
    assert container is not None
    return container.unflatten([_unflatten(leaves, child) for child in spec.children], spec.context)


def tree_leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    return tree_flatten(tree, is_leaf)[0]


tree_iter = tree_leaves


def tree_structure(tree: Any, is_leaf: IsLeaf | None = None) -> TreeSpec:
    return tree_flatten(tree, is_leaf)[1]


def tree_map(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf | None = None
) -> Any:
    """``func`` of each leaf (and of the sub-trees of ``rests`` at the same place), in the same structure."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    return tree_unflatten(map(func, leaves, *others), spec)


def tree_map_(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf | None = None
) -> Any:
    """Call ``func`` on each leaf for its effect; returns ``tree``."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    deque(map(func, leaves, *others), maxlen=0)
    return tree


def tree_map_only(
    types: Any, func: Callable[[Any], Any], tree: Any, is_leaf: IsLeaf | None = None
) -> Any:
    """As ``tree_map``, for the leaves that are instances of ``types``; the others stay."""

    def changed(x: Any) -> Any:
        return func(x) if isinstance(x, types) else x

    return tree_map(changed, tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any) -> bool:
    return all(map(pred, tree_leaves(tree)))


def tree_any(pred: Callable[[Any], bool], tree: Any) -> bool:
    return any(map(pred, tree_leaves(tree)))


def tree_all_only(types: Any, pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether ``pred`` holds for every leaf that is an instance of ``types``."""
    return all(pred(x) for x in tree_leaves(tree) if isinstance(x, types))


def tree_any_only(types: Any, pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether ``pred`` holds for a leaf that is an instance of ``types``."""
    return any(pred(x) for x in tree_leaves(tree) if isinstance(x, types))


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of a call's arguments, positional ones first."""
    return [leaf for value in (*args, *kwargs.values()) for leaf in tree_leaves(value)]


# -- with paths ----------------------------------------------------------------------------------


def tree_flatten_with_path(
    tree: Any, is_leaf: IsLeaf | None = None
) -> tuple[list[tuple[tuple[Any, ...], Any]], TreeSpec]:
    """(path, leaf) pairs from left to right, and the structure; ``keystr`` shows a path."""
    found: list[tuple[tuple[Any, ...], Any]] = []
    _with_path(tree, (), found, is_leaf)
    return found, tree_structure(tree, is_leaf)


def _with_path(
    tree: Any,
    path: tuple[Any, ...],
    found: list[tuple[tuple[Any, ...], Any]],
    is_leaf: IsLeaf | None,
) -> None:
    container = _container(type(tree))
    if container is None or (is_leaf is not None and is_leaf(tree)):
        found.append((path, tree))
        return
    for key, item in zip(container.keys(tree), container.flatten(tree)[0]):
        _with_path(item, (*path, key), found, is_leaf)


def tree_map_with_path(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf | None = None
) -> Any:
    """As ``tree_map``, with the path as the first argument of ``func``."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    paths = map(operator.itemgetter(0), pairs)
    leaves = map(operator.itemgetter(1), pairs)
    return tree_unflatten(map(func, cast("Any", paths), leaves, *others), spec)
