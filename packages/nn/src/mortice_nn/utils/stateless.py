"""functional_call: run a module with other parameters and buffers than its own."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from mortice import Tensor
from mortice.errors import InvalidValue, UnknownName
from mortice_nn.modules.module import Module


def functional_call(
    module: Module,
    parameters_and_buffers: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """``module(*args, **kwargs)`` with the named tensors in place of its own, for this call.

    Names are dotted, as in ``named_parameters``; several mappings must not share one. With
    ``tie_weights`` a tensor that the module has under several names is replaced under all.
    ``strict``: every parameter and buffer must be given.
    """
    given = _merged(parameters_and_buffers)
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    if tie_weights:
        given = _tied(module, given)
    if strict:
        own = {name for name, _ in (*module.named_parameters(), *module.named_buffers())}
        missing = sorted(own - set(given))
        if missing:
            raise InvalidValue(f"functional_call with strict=True: missing {missing}")
    with _replaced(module, given):
        return module(*arguments, **(kwargs or {}))


def _merged(mappings: Any) -> dict[str, Tensor]:
    if isinstance(mappings, Mapping):
        return dict(mappings)
    merged: dict[str, Tensor] = {}
    for mapping in mappings:
        twice = sorted(merged.keys() & mapping.keys())
        if twice:
            raise InvalidValue(f"{twice[0]!r} appears in multiple dictionaries; behaviour of "
                               "functional_call is ambiguous")  # fmt: skip
        merged.update(mapping)
    return merged


def _tied(module: Module, given: dict[str, Tensor]) -> dict[str, Tensor]:
    names: dict[int, list[str]] = {}
    for named in (module.named_parameters, module.named_buffers):
        for name, tensor in named(remove_duplicate=False):
            names.setdefault(id(tensor), []).append(name)
    result = dict(given)
    for group in names.values():
        chosen = [name for name in group if name in given]
        if not chosen:
            continue
        if any(given[name] is not given[chosen[0]] for name in chosen):
            raise InvalidValue(f"functional_call got different values for {chosen}, which are one "
                               "tensor in the module; pass tie_weights=False")  # fmt: skip
        result.update((name, given[chosen[0]]) for name in group)
    return result


@contextmanager
def _replaced(module: Module, given: dict[str, Tensor]) -> Generator[None, None, None]:
    """Put tensors into the modules' tables, and what was there back afterwards."""
    before: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for name, tensor in given.items():
            path, _, leaf = name.rpartition(".")
            owner = module.get_submodule(path)
            tables = (owner._parameters, owner._buffers)
            table: Any = next((table for table in tables if leaf in table), None)
            if table is None:
                raise UnknownName(
                    f"functional_call: {type(owner).__name__} has no parameter or buffer {leaf!r}"
                )
            before.append((table, leaf, table[leaf]))
            table[leaf] = tensor
        yield
    finally:
        for table, leaf, tensor in reversed(before):
            table[leaf] = tensor
