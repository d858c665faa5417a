"""``mortice.fft``: discrete Fourier transforms."""

from __future__ import annotations

from typing import Any

from mortice._dispatch.call import Packet
from mortice._dispatch.plan import call_by_plan

_NAMES = (
    "fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "ifftn", "rfftn", "irfftn", "fft2",
    "ifft2", "rfft2", "irfft2", "fftshift", "ifftshift",
)  # fmt: skip


def _function(name: str) -> Any:
    packet = Packet(f"fft_{name}")

    def transform(*args: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        result = call_by_plan(packet, args, kwargs)
        return result if out is None else out.resize_(result.shape).copy_(result)

    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = f"``aten::fft_{name}``; norm is 'backward', 'forward' or 'ortho'."
    packet.public = transform
    return transform


globals().update({name: _function(name) for name in _NAMES})


def fftfreq(n: int, d: float = 1.0, **options: Any) -> Any:
    """Frequencies of ``n`` points with spacing ``d``: 0, 1, ..., -2, -1 over n * d."""
    import mortice

    positive = mortice.arange(0, (n + 1) // 2, **options)
    return mortice.cat([positive, mortice.arange(-(n // 2), 0, **options)]).to(
        options.get("dtype") or mortice.get_default_dtype()
    ) / (n * d)


def rfftfreq(n: int, d: float = 1.0, **options: Any) -> Any:
    """The non-negative frequencies of ``fftfreq``."""
    import mortice

    dtype = options.get("dtype") or mortice.get_default_dtype()
    return mortice.arange(0, n // 2 + 1, **options).to(dtype) / (n * d)


__all__ = [*_NAMES, "fftfreq", "rfftfreq"]
