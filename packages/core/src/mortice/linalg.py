"""``mortice.linalg``: products, norms, factorisations and solvers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mortice._base.errors import InvalidState
from mortice._dispatch.call import Packet
from mortice._dispatch.plan import call_by_plan
from mortice._types.returns import named_returns

_NAMES = (
    "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh",
    "inv", "inv_ex", "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot",
    "norm", "pinv", "qr", "slogdet", "solve", "solve_triangular", "svd", "svdvals", "tensorinv",
    "tensorsolve", "vander", "vecdot", "vector_norm",
)  # fmt: skip

LinAlgError = InvalidState


def _function(name: str) -> Any:
    packet = Packet(f"linalg_{name}")

    def operation(*args: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        result = call_by_plan(packet, args, kwargs)
        if out is None:
            return result
        if isinstance(result, tuple):
            written = tuple(o.resize_(r.shape).copy_(r) for o, r in zip(out, result))
            return _named(packet, written)
        return out.resize_(result.shape).copy_(result)

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"``aten::linalg_{name}``."
    packet.public = operation
    return operation


def _named(packet: Packet, results: tuple[Any, ...]) -> Any:
    """The results under the names that the schema gives them, such as ``eigenvalues``."""
    fields = tuple(r.name for r in packet.operators()[0].schema.returns)
    return named_returns(packet.name, fields)(*results)


globals().update({name: _function(name) for name in _NAMES})

__all__ = [*_NAMES, "LinAlgError"]


if not TYPE_CHECKING:  # a checker would take every name to be there

    def __getattr__(name: str) -> object:
        """Only what is not there comes here: say what is nearest, or stands in its place."""
        from mortice._base.absent import no_attribute

        raise no_attribute("mortice.linalg", name, __all__)
