"""How each framework says the workloads: ``prepare(framework, workload)`` -> what is timed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from workloads import Ops, Unsaid, Workload


class Prepared:
    """``call()`` runs once and is finished when it returns; ``results()`` gives numpy arrays."""

    def __init__(self, call: Callable[[], Any], results: Callable[[], list[np.ndarray]]) -> None:
        self.call = call
        self.results = results


# -- mortice and torch: one API --------------------------------------------------------------------


def _torch_like(lib: Any) -> Ops:
    f = lib.nn.functional
    return Ops(
        lib.exp, lib.log, lib.abs, lib.tanh, lib.sqrt, lib.sigmoid, f.gelu, lib.relu,
        lambda x: lib.softmax(x, -1), lambda x, w, b: f.layer_norm(x, w.shape, w, b), lib.matmul,
        f.cross_entropy, lambda x, s: x.reshape(s), lambda x, d: x.permute(d), lib.sum,
    )  # fmt: skip


def _prepare_torch_like(lib: Any, w: Workload, compile_: Any) -> Prepared:
    tensors = [lib.from_numpy(a) for a in w.arrays()]
    ops = _torch_like(lib)
    fn = compile_(lambda *given: w.run(ops, *given))
    if not w.parameters:  # no input requires grad, so no framework records for a backward

        def forward() -> Any:
            return fn(*tensors)

        return Prepared(forward, lambda: [np.asarray(forward().numpy())])
    parameters = [t.requires_grad_() for t in tensors[: w.parameters]]

    def step() -> Any:
        for p in parameters:
            p.grad = None
        loss = fn(*tensors)
        loss.backward()
        return loss

    def results() -> list[np.ndarray]:
        loss = step()
        return [loss.detach().numpy(), *(p.grad.numpy() for p in parameters)]

    return Prepared(step, results)


def mortice(w: Workload, threads: int) -> Prepared:
    import mortice as lib
    import mortice.nn

    return _prepare_torch_like(lib, w, lambda fn: lib.compile(fn, backend="inductor"))


def mortice_eager(w: Workload, threads: int) -> Prepared:
    import mortice as lib
    import mortice.nn

    return _prepare_torch_like(lib, w, lambda fn: fn)


def torch_eager(w: Workload, threads: int) -> Prepared:
    import torch as lib

    lib.set_num_threads(threads)
    return _prepare_torch_like(lib, w, lambda fn: fn)


def torch_compile(w: Workload, threads: int) -> Prepared:
    import torch as lib

    lib.set_num_threads(threads)
    return _prepare_torch_like(lib, w, lib.compile)


# -- jax -------------------------------------------------------------------------------------------


def jax(w: Workload, threads: int) -> Prepared:
    import jax as lib
    import jax.numpy as jnp

    def norm(x: Any, g: Any, b: Any) -> Any:
        d = x - x.mean(-1, keepdims=True)
        return d * lib.lax.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5) * g + b

    def cross_entropy(z: Any, y: Any) -> Any:
        picked = jnp.take_along_axis(lib.nn.log_softmax(z), y[:, None], 1)
        return -picked.mean()

    ops = Ops(
        jnp.exp, jnp.log, jnp.abs, jnp.tanh, jnp.sqrt, lib.nn.sigmoid,
        lambda x: lib.nn.gelu(x, approximate=False), lib.nn.relu, lib.nn.softmax, norm, jnp.matmul,
        cross_entropy, jnp.reshape, jnp.transpose, jnp.sum,
    )  # fmt: skip
    arrays = [jnp.asarray(a) for a in w.arrays()]

    def run(*given: Any) -> Any:
        return w.run(ops, *given)

    fn = run
    if w.parameters:
        fn = lib.value_and_grad(run, argnums=tuple(range(w.parameters)))
    compiled = lib.jit(fn)

    def results() -> list[np.ndarray]:
        return [np.asarray(x) for x in lib.tree.leaves(compiled(*arrays))]

    return Prepared(lambda: lib.block_until_ready(compiled(*arrays)), results)


# -- numba: loops by hand, where that is how one would write it --------------------------------------


def numba(w: Workload, threads: int) -> Prepared:
    import numba as lib

    lib.set_num_threads(threads)
    kernels = _numba_kernels(lib)
    if w.run.__name__ not in kernels:
        raise Unsaid
    kernel = kernels[w.run.__name__]
    arrays = w.arrays()

    def call() -> Any:
        return kernel(*arrays)

    return Prepared(call, lambda: [call()])


def _numba_kernels(lib: Any) -> dict[str, Any]:
    erf, exp, log, sqrt, tanh = math.erf, math.exp, math.log, math.sqrt, math.tanh
    jit = lib.njit(parallel=True, fastmath=True)

    @jit
    def chain(x: Any, y: Any) -> Any:
        out = np.empty_like(x)
        for i in lib.prange(x.size):
            a = x[i] * y[i] + x[i]
            c = log(np.float32(1) + exp(-abs(a)))
            d = tanh(c) * y[i]
            e = np.float32(0.5) * d * (np.float32(1) + erf(d * np.float32(0.70710678)))
            f = e / (np.float32(1) + exp(-x[i]))
            out[i] = sqrt(f * f + np.float32(1))
        return out

    @jit
    def arithmetic(x: Any, y: Any) -> Any:
        out = np.empty_like(x)
        for i in lib.prange(x.size):
            a = (x[i] + y[i]) * x[i]
            b = (a - y[i]) * np.float32(0.5)
            c = (b + x[i]) * (b - y[i])
            out[i] = (c * np.float32(0.25) + y[i]) * x[i]
        return out

    @jit
    def softmax(x: Any) -> Any:
        out = np.empty_like(x)
        for r in lib.prange(x.shape[0]):
            top = x[r].max()
            total = np.float32(0)
            for k in range(x.shape[1]):
                out[r, k] = exp(x[r, k] - top)
                total += out[r, k]
            for k in range(x.shape[1]):
                out[r, k] /= total
        return out

    return {"chain": chain, "arithmetic": arithmetic, "softmax": softmax}


FRAMEWORKS: dict[str, Callable[[Workload, int], Prepared]] = {
    "mortice": mortice,
    "mortice eager": mortice_eager,
    "torch eager": torch_eager,
    "torch.compile": torch_compile,
    "jax.jit": jax,
    "numba": numba,
}
