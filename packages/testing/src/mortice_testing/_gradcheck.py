"""``gradcheck`` and ``gradgradcheck``: derivatives against differences.

A function of tensors is taken for a function of real numbers: a complex element is two of them, in
the inputs and in the outputs. Reverse mode gives for a cotangent ``v`` the gradient of
``sum(Re(v) * Re(out) + Im(v) * Im(out))``, so that the Jacobian's row of an output's real part
comes from the cotangent 1 there, and that of its imaginary part from 1j. Central differences give
the columns. Slow mode compares all entries; fast mode compares ``v @ J @ u`` for random unit
vectors ``u`` and ``v``, which costs two calls and one backward for each pair of input and output.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import mortice
from mortice.errors import AutogradError, InvalidState, InvalidValue
from mortice_testing._host import dtype_name, is_tensor, to_numpy

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]


class GradcheckError(AutogradError):
    """A derivative is wrong; the message names input, output and entry."""


class _Options(NamedTuple):
    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    check_undefined_grad: bool
    check_grad_dtypes: bool
    fast_mode: bool


def gradcheck(
    func: Function,
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Check the gradients of ``func`` at ``inputs`` against central differences.

    Args:
        func: A function of the inputs that returns a tensor or a sequence with tensors.
        inputs: A tensor or a sequence; what is no tensor is handed on. Those that require grad are
            checked, and should be float64 or complex128: differences in float32 are too coarse.
        eps: Step of the differences.
        atol: Absolute tolerance between derivative and difference.
        rtol: Relative tolerance.
        raise_exception: Whether to raise on a mismatch rather than return False.
        nondet_tol: By how much two backward runs may differ.
        check_undefined_grad: Whether an output left out of the backward must count as zeros.
        check_grad_dtypes: Whether gradients must have their inputs' dtypes.
        check_batched_grad: Not supported, must be False.
        check_batched_forward_grad: Not supported, must be False.
        check_forward_ad: Not supported (mortice differentiates in reverse), must be False.
        check_backward_ad: Whether to check reverse mode, which is all there is to check.
        fast_mode: Whether to compare random projections in place of whole Jacobians.
        masked: For sparse inputs in PyTorch; has no effect.

    Returns:
        True if all gradients are right.

    Raises:
        GradcheckError: (a RuntimeError) A gradient is wrong.
        InvalidValue: (a ValueError) No input requires grad, or an option is not supported.
    """
    unsupported = {
        "check_batched_grad": check_batched_grad,
        "check_batched_forward_grad": check_batched_forward_grad,
        "check_forward_ad": check_forward_ad,
    }
    _refuse("gradcheck", unsupported)
    if not check_backward_ad:
        raise InvalidValue("gradcheck: check_backward_ad=False leaves nothing to check; drop it")
    arguments = _as_tuple(inputs)
    options = _Options(
        eps, atol, rtol, nondet_tol, check_undefined_grad, check_grad_dtypes, fast_mode
    )
    try:
        _check_inputs(arguments)
        _Check(func, arguments, options).run()
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Function,
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Check second derivatives: the gradients of ``func``'s gradients.

    The arguments are ``gradcheck``'s, and:

    Args:
        func: As in ``gradcheck``.
        inputs: As in ``gradcheck``.
        grad_outputs: Cotangents of the outputs, which are checked as inputs of the backward;
            random ones by default.
        eps: Step of the differences.
        atol: Absolute tolerance.
        rtol: Relative tolerance.
        gen_non_contig_grad_outputs: Whether the random cotangents lie with gaps.
        raise_exception: Whether to raise on a mismatch rather than return False.
        nondet_tol: By how much two runs may differ.
        check_undefined_grad: As in ``gradcheck``.
        check_grad_dtypes: As in ``gradcheck``.
        check_batched_grad: Not supported, must be False.
        check_fwd_over_rev: Not supported, must be False.
        check_rev_over_rev: Whether to check reverse over reverse, which is all there is.
        fast_mode: As in ``gradcheck``.
        masked: Has no effect.

    Returns:
        True if all second derivatives are right.

    Raises:
        GradcheckError: (a RuntimeError) A second derivative is wrong.
        InvalidValue: (a ValueError) As in ``gradcheck``.
    """
    _refuse("gradgradcheck", {
        "check_batched_grad": check_batched_grad, "check_fwd_over_rev": check_fwd_over_rev,
    })  # fmt: skip
    if not check_rev_over_rev:
        raise InvalidValue("gradgradcheck: check_rev_over_rev=False leaves nothing to check")
    arguments = _as_tuple(inputs)
    _check_inputs(arguments)
    if grad_outputs is None:
        outputs = _differentiable(func(*arguments))
        cotangents = tuple(_random_cotangent(out, gen_non_contig_grad_outputs) for out in outputs)
    else:
        cotangents = _as_tuple(grad_outputs)
    count = len(arguments)
    wanted = [i for i, value in enumerate(arguments) if _checked(value)]

    def gradients(*values: Any) -> tuple[Any, ...]:
        primals = values[:count]
        outputs = _differentiable(func(*primals))
        found = mortice.autograd.grad(
            outputs, [primals[i] for i in wanted], list(values[count:]), create_graph=True,
            allow_unused=True,
        )  # fmt: skip
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradients, (*arguments, *cotangents), eps=eps, atol=atol, rtol=rtol,
        raise_exception=raise_exception, nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes,
        fast_mode=fast_mode,
    )  # fmt: skip


# -- inputs ------------------------------------------------------------------------------------


def _refuse(name: str, options: dict[str, bool]) -> None:
    for option, value in options.items():
        if value:
            raise InvalidValue(
                f"{name}: {option}=True is not supported, mortice differentiates in reverse mode; "
                "leave it out"
            )


def _as_tuple(values: Any) -> tuple[Any, ...]:
    return (values,) if is_tensor(values) else tuple(values)


def _checked(value: Any) -> bool:
    return is_tensor(value) and value.requires_grad


def _check_inputs(arguments: Sequence[Any]) -> None:
    checked = [i for i, value in enumerate(arguments) if _checked(value)]
    if not checked:
        raise InvalidValue(
            "gradcheck: no input requires grad; call requires_grad_() on those to be checked"
        )
    for i in checked:
        tensor = arguments[i]
        if dtype_name(tensor.dtype) not in ("float64", "complex128"):
            warnings.warn(
                f"gradcheck: input {i} is {tensor.dtype}; differences with a small step need "
                "float64 or complex128, so this check will likely fail",
                stacklevel=4,
            )
        sizes = zip(tensor.shape, tensor.stride(), strict=True)
        if tensor.numel() and any(step == 0 and n > 1 for n, step in sizes):
            raise InvalidState(
                f"gradcheck: elements of input {i} share memory (a stride is 0), so that they "
                "cannot be moved one by one; pass input.contiguous()"
            )


def _flat(result: Any) -> list[Any]:
    """Return the tensors of a result in order."""
    if is_tensor(result):
        return [result]
    if isinstance(result, (list, tuple)):
        return [leaf for item in result for leaf in _flat(item)]
    return []


def _differentiable(result: Any) -> list[Any]:
    return [out for out in _flat(result) if out.requires_grad]


def _random_cotangent(out: Any, gaps: bool) -> Any:
    from mortice_testing._samples import make_tensor

    return make_tensor(
        tuple(out.shape), dtype=out.dtype, device=out.device, low=-1, high=1, requires_grad=True,
        noncontiguous=gaps,
    )  # fmt: skip


# -- real views of complex numbers -------------------------------------------------------------


def _reals(values: Array) -> Array:
    """Flatten; a complex element gives its real and its imaginary part."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if flat.dtype.kind == "c":
        return flat.view(np.float64 if flat.dtype == np.complex128 else np.float32)
    return flat


def _from_reals(reals: Array, like: Any) -> Any:
    """Make a tensor of ``like``'s shape, dtype and device of real numbers."""
    name = dtype_name(like.dtype)
    if like.dtype.is_complex:
        kind = np.complex128 if name == "complex128" else np.complex64
        part = np.float64 if name == "complex128" else np.float32
        array = np.ascontiguousarray(reals.astype(part)).view(kind)
    else:
        array = reals.astype(np.float64)
    shaped = mortice.from_numpy(array.reshape(tuple(like.shape)).copy())
    return shaped.to(device=like.device, dtype=like.dtype)


def _real_count(tensor: Any) -> int:
    return tensor.numel() * (2 if tensor.dtype.is_complex else 1)


# -- the check ---------------------------------------------------------------------------------


class _Check:
    """One call of gradcheck: the function, its inputs, its outputs at these inputs."""

    def __init__(self, func: Function, arguments: tuple[Any, ...], options: _Options) -> None:
        self.func, self.arguments, self.options = func, arguments, options
        self.checked = [i for i, value in enumerate(arguments) if _checked(value)]
        self.random = np.random.default_rng(0)

    def run(self) -> None:
        outputs = _flat(self.func(*self.arguments))
        inexact = [j for j, out in enumerate(outputs) if _inexact(out)]
        live = [j for j in inexact if outputs[j].requires_grad]
        for j in inexact:
            for i in self.checked:
                if j not in live:
                    self._must_be_constant(i, j)
                elif self.options.fast_mode:
                    self._compare_projection(i, j)
                else:
                    self._compare_jacobian(i, j)
        if live:
            self._same_twice(live)
            if self.options.check_undefined_grad:
                self._undefined_is_zero(live)

    # numeric side

    def _moved(self, i: int, reals: Array) -> list[Array]:
        """Outputs, as real numbers, with input ``i`` replaced."""
        values = list(self.arguments)
        values[i] = _from_reals(reals, self.arguments[i]).requires_grad_()
        return [_reals(to_numpy(out)) for out in _flat(self.func(*values))]

    def _difference(self, i: int, j: int, direction: Array) -> Array:
        """Central difference of output ``j`` along ``direction`` in input ``i``."""
        base = _reals(to_numpy(self.arguments[i])).astype(np.float64)
        step = self.options.eps * direction
        ahead, behind = self._moved(i, base + step)[j], self._moved(i, base - step)[j]
        with np.errstate(invalid="ignore"):
            return (ahead.astype(np.float64) - behind) / (2 * self.options.eps)

    def _numeric_jacobian(self, i: int, j: int, rows: int) -> Array:
        columns = _real_count(self.arguments[i])
        jacobian = np.zeros((rows, columns))
        for column in range(columns):
            direction = np.zeros(columns)
            direction[column] = 1.0
            jacobian[:, column] = self._difference(i, j, direction)
        return jacobian

    # analytic side

    def _pull(self, i: int, j: int, cotangent: Array) -> Array:
        """``cotangent @ J`` by one backward, as real numbers; a missing gradient is zeros."""
        out = _flat(self.func(*self.arguments))[j]
        primal = self.arguments[i]
        (found,) = mortice.autograd.grad(
            [out], [primal], [_from_reals(cotangent, out)], allow_unused=True
        )
        if found is None:
            return np.zeros(_real_count(primal))
        self._check_form(i, j, found)
        return _reals(to_numpy(found)).astype(np.float64)

    def _check_form(self, i: int, j: int, gradient: Any) -> None:
        primal = self.arguments[i]
        if tuple(gradient.shape) != tuple(primal.shape):
            raise GradcheckError(
                f"gradcheck: the gradient of output {j} for input {i} has shape "
                f"{tuple(gradient.shape)}, expected {tuple(primal.shape)}; sum over what the "
                "forward broadcast"
            )
        if self.options.check_grad_dtypes and gradient.dtype != primal.dtype:
            raise GradcheckError(
                f"gradcheck: the gradient of output {j} for input {i} is {gradient.dtype}, "
                f"expected {primal.dtype}"
            )

    # comparisons

    def _near(self, analytic: Array, numeric: Array) -> Array:
        with np.errstate(invalid="ignore"):
            near = np.abs(analytic - numeric) <= self.options.atol + self.options.rtol * np.abs(
                numeric
            )
        return near | (analytic == numeric) | (np.isnan(analytic) & np.isnan(numeric))

    def _compare_jacobian(self, i: int, j: int) -> None:
        out = _flat(self.func(*self.arguments))[j]
        rows = _real_count(out)
        numeric = self._numeric_jacobian(i, j, rows)
        analytic = np.zeros_like(numeric)
        for row in range(rows):
            cotangent = np.zeros(rows)
            cotangent[row] = 1.0
            analytic[row] = self._pull(i, j, cotangent)
        bad = ~self._near(analytic, numeric)
        if bad.any():
            raise GradcheckError(self._describe(i, j, out, analytic, numeric, bad))

    def _describe(
        self, i: int, j: int, out: Any, analytic: Array, numeric: Array, bad: Array
    ) -> str:
        off = np.where(bad, np.nan_to_num(np.abs(analytic - numeric), nan=np.inf), -1.0)
        row, column = (int(k) for k in np.unravel_index(int(off.argmax()), off.shape))
        return (
            f"gradcheck: the gradient of output {j} for input {i} is wrong in {int(bad.sum())} of "
            f"{bad.size} entries; worst: d out{_element(row, out)} / d "
            f"in{_element(column, self.arguments[i])} is {analytic[row, column]:.8g} by backward, "
            f"{numeric[row, column]:.8g} by differences (rtol {self.options.rtol:g}, atol "
            f"{self.options.atol:g})"
        )

    def _compare_projection(self, i: int, j: int) -> None:
        out = _flat(self.func(*self.arguments))[j]
        if out.numel() == 0 or self.arguments[i].numel() == 0:
            return
        direction, cotangent = self._unit(self.arguments[i]), self._unit(out)
        numeric = np.asarray(self._difference(i, j, direction) @ cotangent)
        analytic = np.asarray(self._pull(i, j, cotangent) @ direction)
        # Projections of unit vectors average n entries down to about one entry's size.
        if not self._near(analytic, numeric).all():
            raise GradcheckError(
                f"gradcheck: the gradient of output {j} for input {i} is wrong: along a random "
                f"direction it is {float(analytic):.8g} by backward, {float(numeric):.8g} by "
                "differences; fast_mode=False names the entry"
            )

    def _unit(self, like: Any) -> Array:
        vector = self.random.standard_normal(_real_count(like))
        return vector / np.linalg.norm(vector)

    def _must_be_constant(self, i: int, j: int) -> None:
        """An output without a graph must not depend on an input that requires grad."""
        columns = _real_count(self.arguments[i])
        directions = np.eye(columns)
        if self.options.fast_mode and columns:
            directions = self._unit(self.arguments[i])[None]
        for direction in directions:
            if not self._near(np.zeros(()), self._difference(i, j, direction)).all():
                raise GradcheckError(
                    f"gradcheck: output {j} changes with input {i} but does not require grad; the "
                    "function cuts the graph (detach, no_grad, or an operator without derivative)"
                )

    def _gradients(self, live: list[int], cotangents: list[Array]) -> list[Array]:
        outputs = _flat(self.func(*self.arguments))
        given = [_from_reals(c, outputs[j]) for j, c in zip(live, cotangents, strict=True)]
        primals = [self.arguments[i] for i in self.checked]
        found = mortice.autograd.grad([outputs[j] for j in live], primals, given, allow_unused=True)
        return [
            np.zeros(_real_count(primal)) if g is None else _reals(to_numpy(g))
            for g, primal in zip(found, primals, strict=True)
        ]

    def _same_twice(self, live: list[int]) -> None:
        outputs = _flat(self.func(*self.arguments))
        cotangents = [self._unit(outputs[j]) for j in live]
        first, second = (self._gradients(live, cotangents) for _ in range(2))
        for i, a, b in zip(self.checked, first, second, strict=True):
            off = float(np.abs(a - b).max(initial=0.0))
            if off > self.options.nondet_tol:
                raise GradcheckError(
                    f"gradcheck: two backward runs give gradients for input {i} that differ by "
                    f"{off:g}; give nondet_tol if that is meant"
                )

    def _undefined_is_zero(self, live: list[int]) -> None:
        """Leaving an output out of the backward must equal giving it zeros."""
        outputs = _flat(self.func(*self.arguments))
        for j in live:
            cotangent = self._unit(outputs[j])
            zeros = [cotangent if k == j else np.zeros(_real_count(outputs[k])) for k in live]
            alone, beside = self._gradients([j], [cotangent]), self._gradients(live, zeros)
            for i, a, b in zip(self.checked, alone, beside, strict=True):
                if not self._near(a, b).all():
                    raise GradcheckError(
                        f"gradcheck: with output {j} alone in the backward, the gradient for input "
                        f"{i} is not what it is with zeros for the other outputs; treat a "
                        "gradient of None as zeros in backward"
                    )


def _inexact(out: Any) -> bool:
    return out.dtype.is_floating_point or out.dtype.is_complex


def _element(real_index: int, tensor: Any) -> str:
    """Name an element, ``[1, 2]`` or ``[1, 2].imag``."""
    part = ""
    if tensor.dtype.is_complex:
        real_index, imaginary = divmod(real_index, 2)
        part = ".imag" if imaginary else ".real"
    index = np.unravel_index(real_index, tuple(tensor.shape)) if tensor.shape else ()
    return f"[{', '.join(str(int(k)) for k in index)}]{part}"
