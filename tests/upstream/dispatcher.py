"""PyTorch's private names of its dispatcher, over mortice's public ones.

Pure Python of PyTorch's that stands on them, such as the predecessor of ``custom_op``, then runs on
``mortice.library`` as it is.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import mortice


def lookup(name: str) -> Any:
    """The overload ``ns::name`` or ``ns::name.overload``."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(mortice.ops, namespace), packet), overload or "default")


def find_schema_or_throw(name: str, overload: str) -> Any:
    return lookup(f"{name}.{overload}" if overload else name)


def call_boxed(handle: Any, *args: Any, **kwargs: Any) -> Any:
    return handle(*args, **kwargs)


def has_kernel(name: str, key: Any) -> bool:
    try:
        op = lookup(name)
    except AttributeError:
        return False
    return op.has_kernel_for_dispatch_key(str(key))


#: What answers for a device beside a kernel of its own.
_COMPOSITE = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")


def has_computed_kernel(name: str, key: Any) -> bool:
    return any(has_kernel(name, k) for k in (str(key), *_COMPOSITE))


def set_report_error_callback(handle: Any, callback: Any) -> None:
    """PyTorch's own text where an operator has no kernel; ours is said without."""


def parse_schema(text: str) -> Any:
    from mortice._dispatch.schema import parse

    return parse(text, "checked")


def schemas_for(name: str) -> list[Any]:
    """The schemas of all overloads of ``ns::name``."""
    namespace, _, packet = name.partition("::")
    overloads = getattr(getattr(mortice.ops, namespace), packet).op_overloads()
    return [op._schema for op in overloads]


def is_tensorlist_like_type(kind: Any) -> bool:
    return kind.is_tensor and kind.is_list


def is_functional_schema(schema: Any, *, allow_valid_view: bool = False) -> bool:
    """Writes to nothing, returns something, and no view of an argument."""
    found = parse_schema("checked::op" + re.sub(r"^[^(]*", "", str(schema)))
    if found.mutated or not found.returns:
        return False
    if not any(r.type.alias for r in found.returns):
        return True
    return allow_valid_view and len(found.tensor_positions) == len(found.returns) == 1


@contextlib.contextmanager
def set_ctx_getter(getter: Any) -> Iterator[None]:
    """mortice refuses ``get_ctx`` on meta tensors by itself."""
    yield


def _key_set(key: str) -> Any:
    """The set of one backend's key."""
    from mortice._dispatch import keys as K

    functionality, device = K.parse_key(key)
    bits = K.BITS.get(functionality, 0) | (K.device_bit(device) if device else 0)
    return mortice.library.DispatchKeySet(bits)


def register_rule(library: Any, name: str, cls: Any, function: Any) -> None:
    """``Library._register_torch_dispatch_rule``."""
    op = lookup(f"{library.ns}::{name}")
    mortice.library.register_mortice_dispatch(op, cls, function, lib=library)


PRIVATE = {
    "DispatchKeySet": _key_set,
    "_dispatch_find_schema_or_throw": find_schema_or_throw,
    "_dispatch_call_boxed": call_boxed,
    "_dispatch_has_kernel_for_dispatch_key": has_kernel,
    "_dispatch_has_computed_kernel_for_dispatch_key": has_computed_kernel,
    "_dispatch_set_report_error_callback": set_report_error_callback,
    "parse_schema": parse_schema,
    "_jit_get_schemas_for_operator": schemas_for,
    "Tag": mortice.library.Tag,
}
