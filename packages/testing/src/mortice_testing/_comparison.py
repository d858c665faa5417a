"""``assert_close``: two results agree in structure, metadata and, within tolerances, in values."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mortice.errors import ArgumentError, InvalidValue
from mortice_testing._host import dtype_name, is_tensor, to_numpy

# (rtol, atol) by dtype, torch.testing's; everything that is not listed is compared exactly.
TOLERANCES: dict[str, tuple[float, float]] = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex32": (1e-3, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}
_NUMBER_DTYPES = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}


class _Rules(NamedTuple):
    allow_subclasses: bool
    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    check_stride: bool


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Assert that ``actual`` equals ``expected`` up to rounding.

    Two values are close if ``abs(actual - expected) <= atol + rtol * abs(expected)``, or if they
    are equal (infinities are), or both NaN with ``equal_nan``. Integers and booleans must be equal.
    Tensors, Python numbers and None are compared; sequences and mappings item by item.

    Args:
        actual: What was computed.
        expected: What it should be.
        allow_subclasses: Whether a subclass of Tensor may be compared with a Tensor.
        rtol: Relative tolerance, given together with ``atol``; by default by dtype: 1.3e-6 for
            float32, 1e-7 for float64, 1e-3 for float16, 1.6e-2 for bfloat16. Of two dtypes the
            looser counts.
        atol: Absolute tolerance: 1e-5, and 1e-7 for float64 and complex128.
        equal_nan: Whether NaN equals NaN.
        check_device: Whether the devices must agree.
        check_dtype: Whether the dtypes, or types of Python numbers, must agree.
        check_layout: Whether the layouts must agree.
        check_stride: Whether the strides must agree.
        msg: Replaces the message, or makes one from it.

    Raises:
        AssertionError: They differ. The message names the place in nested arguments, how many
            elements differ and the worst of them with its index.
        ArgumentError: (a TypeError) The types cannot be compared with each other.
        InvalidValue: (a ValueError) Only one of ``rtol`` and ``atol`` was given.
    """
    if (rtol is None) != (atol is None):
        given, missing = ("atol", "rtol") if rtol is None else ("rtol", "atol")
        raise InvalidValue(
            f"assert_close: {given} was given without {missing}; give both or neither"
        )
    rules = _Rules(
        allow_subclasses, rtol, atol, equal_nan, check_device, check_dtype, check_layout,
        check_stride,
    )  # fmt: skip
    difference = _compare(actual, expected, rules, "")
    if difference is None:
        return
    text = msg(difference) if callable(msg) else difference if msg is None else msg
    raise AssertionError(text)


def _compare(actual: Any, expected: Any, rules: _Rules, path: str) -> str | None:
    """Return what differs, or None."""
    if actual is None or expected is None:
        return _nones(actual, expected, path)
    for test, compare in _PAIRS:
        if test(actual) and test(expected):
            difference = compare(actual, expected, rules, path)
            if difference is None or not path or "\nin item " in difference:
                return difference
            return f"{difference}\nin item {path}"
    where = f" in item {path}" if path else ""
    raise ArgumentError(
        f"assert_close: cannot compare a {_kind(actual)} with a {_kind(expected)}{where}; give two "
        "tensors, two numbers, two sequences or two mappings"
    )


def _kind(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


# -- pairs -------------------------------------------------------------------------------------


def _nones(actual: Any, expected: Any, path: str) -> str | None:
    if actual is expected:
        return None
    where = f"\nin item {path}" if path else ""
    return f"{actual!r} found, {expected!r} expected{where}"


def _numbers(actual: Any, expected: Any, rules: _Rules, path: str) -> str | None:
    kinds = (_number_kind(actual), _number_kind(expected))
    if rules.check_dtype and kinds[0] is not kinds[1]:
        return (
            f"{_article(kinds[0])} {actual!r} found, {_article(kinds[1])} {expected!r} expected; "
            "check_dtype=False compares values alone"
        )
    rtol, atol = _tolerances([_NUMBER_DTYPES[kind] for kind in kinds], rules)
    found, wanted = np.asarray(actual), np.asarray(expected)
    if _close(found, wanted, rtol, atol, rules.equal_nan).all():
        return None
    return (
        f"numbers differ: {actual!r} found, {expected!r} expected, "
        f"difference {abs(actual - expected):g}{_allowed(rtol, atol)}"
    )


def _number_kind(value: object) -> type:
    order: list[tuple[Any, type]] = [
        ((bool, np.bool_), bool), (numbers.Integral, int), (numbers.Real, float),
    ]  # fmt: skip
    return next((kind for abstract, kind in order if isinstance(value, abstract)), complex)


def _article(kind: type) -> str:
    return f"an {kind.__name__}" if kind is int else f"a {kind.__name__}"


def _mappings(actual: Any, expected: Any, rules: _Rules, path: str) -> str | None:
    missing = sorted(repr(key) for key in expected if key not in actual)
    extra = sorted(repr(key) for key in actual if key not in expected)
    if missing or extra:
        parts = [f"missing {', '.join(missing)}"] if missing else []
        parts += [f"not expected {', '.join(extra)}"] if extra else []
        return f"keys of the mappings differ: {'; '.join(parts)}"
    for key in expected:
        difference = _compare(actual[key], expected[key], rules, f"{path}[{key!r}]")
        if difference is not None:
            return difference
    return None


def _sequences(actual: Any, expected: Any, rules: _Rules, path: str) -> str | None:
    if len(actual) != len(expected):
        return f"lengths of the sequences differ: {len(actual)} found, {len(expected)} expected"
    for i, (found, wanted) in enumerate(zip(actual, expected, strict=True)):
        difference = _compare(found, wanted, rules, f"{path}[{i}]")
        if difference is not None:
            return difference
    return None


def _tensors(actual: Any, expected: Any, rules: _Rules, path: str) -> str | None:
    if not rules.allow_subclasses and type(actual) is not type(expected):
        raise ArgumentError(
            f"assert_close: {_kind(actual)} found, {_kind(expected)} expected, and "
            "allow_subclasses=False"
        )
    difference = _metadata(actual, expected, rules)
    if difference is not None or "meta" in (actual.device.type, expected.device.type):
        return difference  # meta tensors have no values to compare
    names = [dtype_name(actual.dtype), dtype_name(expected.dtype)]
    rtol, atol = _tolerances(names, rules)
    found, wanted = to_numpy(actual), to_numpy(expected)
    bad = ~_close(found, wanted, rtol, atol, rules.equal_nan)
    return _describe(found, wanted, bad, rtol, atol) if bad.any() else None


def _metadata(actual: Any, expected: Any, rules: _Rules) -> str | None:
    """Compare what can differ before any value is read."""
    checks: list[tuple[str, bool, Callable[[Any], Any]]] = [
        ("shapes", True, lambda t: tuple(t.shape)),
        ("devices", rules.check_device, lambda t: t.device),
        ("dtypes", rules.check_dtype, lambda t: t.dtype),
        ("layouts", rules.check_layout, lambda t: t.layout),
        ("strides", rules.check_stride, lambda t: tuple(t.stride())),
    ]
    for name, wanted, read in checks:
        if wanted and read(actual) != read(expected):
            hint = "" if name == "shapes" else f"; check_{name[:-1]}=False allows that"
            return f"{name} differ: {read(actual)} found, {read(expected)} expected{hint}"
    return None


_PAIRS: list[tuple[Callable[[Any], bool], Callable[..., str | None]]] = [
    (is_tensor, _tensors),
    (lambda v: isinstance(v, numbers.Number), _numbers),
    (lambda v: isinstance(v, Mapping), _mappings),
    (lambda v: isinstance(v, Sequence) and not isinstance(v, (str, bytes)), _sequences),
]


# -- values ------------------------------------------------------------------------------------


def _tolerances(names: list[str], rules: _Rules) -> tuple[float, float]:
    if rules.rtol is not None and rules.atol is not None:
        return rules.rtol, rules.atol
    pairs = [TOLERANCES.get(name, (0.0, 0.0)) for name in names]
    return max(rtol for rtol, _ in pairs), max(atol for _, atol in pairs)


def _close(
    found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], rtol: float, atol: float,
    equal_nan: bool,
) -> np.ndarray[Any, Any]:  # fmt: skip
    """Compare elementwise; exact for integers without tolerances."""
    equal = np.asarray(found == wanted)
    if equal_nan:
        equal = equal | (_isnan(found) & _isnan(wanted))
    if rtol == 0 and atol == 0:
        return equal
    with np.errstate(invalid="ignore", over="ignore"):
        wide_found, wide_wanted = _wide(found), _wide(wanted)
        off = np.abs(wide_found - wide_wanted)
        near = off <= atol + rtol * np.abs(wide_wanted)
        return equal | (near & np.isfinite(wide_wanted) & np.isfinite(off))


def _isnan(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    inexact = values.dtype.kind in "fc"
    return np.isnan(values) if inexact else np.zeros(values.shape, dtype=bool)


def _wide(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def _allowed(rtol: float, atol: float) -> str:
    return f" (allowed: {atol:g} + {rtol:g} x expected)" if rtol or atol else " (must be equal)"


def _describe(
    found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], bad: np.ndarray[Any, Any],
    rtol: float, atol: float,
) -> str:  # fmt: skip
    """Say how many differ, and where absolute and relative differences are largest."""
    with np.errstate(all="ignore"):
        off = np.abs(_wide(found) - _wide(wanted))
        relative = off / np.abs(_wide(wanted))
    count, total = int(bad.sum()), bad.size
    lines = [f"tensors differ in {count} of {total} elements ({100 * count / total:.3g} %)"]
    for name, measure in (("absolute", off), ("relative", relative)):
        # NaN against a number is the largest difference there is.
        ranked = np.where(bad, np.where(np.isnan(measure), np.inf, measure), -1.0)
        index = tuple(int(i) for i in np.unravel_index(int(ranked.argmax()), ranked.shape))
        lines.append(
            f"largest {name} difference {measure[index]:g} at index {index}: "
            f"{found[index].item()!r} found, {wanted[index].item()!r} expected"
        )
    lines[0] += _allowed(rtol, atol)
    return "\n".join(lines)
