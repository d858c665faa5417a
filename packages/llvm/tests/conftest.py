"""Tests run each kernel on every instruction-set level that this machine has."""

from __future__ import annotations

import math
import os
from functools import partial

import numpy as np
import pytest

from mortice_llvm import kernels, target
from mortice_llvm.runtime import cache


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("MORTICE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(autouse=True)
def _by_the_variable(monkeypatch):
    """Entries lie where the variable says, whoever else uses the package in this process."""
    monkeypatch.setattr(cache, "_chosen", partial(os.environ.get, "MORTICE_CACHE_DIR"))


def _runnable() -> list[str]:
    arch = target.machine()
    flags = target._cpu_flags() if arch == "x86_64" else frozenset()
    return [t.name for t in target.TARGETS.values() if t.arch == arch and t.needs <= flags]


@pytest.fixture(params=_runnable())
def level(request, monkeypatch):
    """Each level in turn, as if it were this machine's best."""
    monkeypatch.setattr(target, "_host", target.named(request.param))
    monkeypatch.setattr(kernels, "_ready", {})
    return request.param


class Reference:
    """Float64 functions to compare with."""

    erf = staticmethod(np.vectorize(math.erf, otypes=[float]))
    erfc = staticmethod(np.vectorize(math.erfc, otypes=[float]))

    @staticmethod
    def sigmoid(x):
        return 1.0 / (1.0 + np.exp(-x))

    @staticmethod
    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)


@pytest.fixture(scope="session")
def ref():
    return Reference


def call(fn, *args):
    """Calls a kernel with arrays in the place of addresses."""
    fn(*[a.ctypes.data if isinstance(a, np.ndarray) else a for a in args])


@pytest.fixture(scope="session", name="call")
def _call():
    return call


def ulp_error(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Error in units in the last place of the result's dtype; inf where only one is not finite."""
    small = np.finfo(got.dtype).tiny
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        unit = np.spacing(np.maximum(np.abs(rounded), small)).astype(np.float64)
        error = np.abs(got.astype(want.dtype) - want).astype(np.float64) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(want))
    return np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))


@pytest.fixture(scope="session", name="ulp_error")
def _ulp_error():
    return ulp_error
