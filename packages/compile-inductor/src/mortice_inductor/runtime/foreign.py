"""Graphs on devices whose packages compile kernels themselves."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import mortice
from mortice.backend import array

from .. import devices
from ..codegen.kernel import Code
from ..ir.refusal import Refusal
from ..plan import CallStep
from ..specs import NumberSpec, Spec, mortice_dtype
from .operators import OperatorByOperator
from .program import find_operator

# Products and random numbers are the device's own operators.
_OWN = ("mm", "bmm", "addmm", "baddbmm", "linear", "matmul", "rand", "rand_like", "native_dropout")


def device_program(gm: Any, inputs: tuple[Any, ...], specs: tuple[Spec, ...], device: str) -> Any:
    """The program for a graph on ``device``; the graph itself where nothing compiles for it."""
    found = devices.backend_of(device)
    if found is None:
        warnings.warn(
            f"inductor has no code generator for device {device!r}: the graph runs operator by "
            "operator. A package brings one with register_backend_for_device().",
            stacklevel=2,
        )
        return OperatorByOperator(gm)
    if found.custom_pass is not None:
        found.custom_pass(gm)
        gm.recompile()
    from ..compile import custom_passes, settings
    from ..inputs import aliases, numbers_of
    from ..pipeline import build

    custom_passes(gm)
    base = settings(aliases(inputs), numbers_of(gm, inputs), device)
    table = {k: v for k, v in base.lowerings.items() if k.split(".")[0] not in _OWN}
    built = build(gm, specs, base._replace(lowerings=table))
    try:
        return DeviceProgram(built, specs, found.compiler, _device_of(inputs))
    except NotImplementedError as error:
        warnings.warn(
            f"device {device!r} does not compile a kernel ({error}): the graph runs operator by "
            "operator.",
            stacklevel=2,
        )
        return OperatorByOperator(gm)


def _device_of(inputs: tuple[Any, ...]) -> Any:
    return next(x.device for x in inputs if isinstance(x, mortice.Tensor) and not x.is_cpu)


class DeviceProgram:
    """Runs a plan kernel by kernel, in memory of the device."""

    def __init__(
        self, built: Any, specs: tuple[Spec, ...], compiler: devices.KernelCompiler, device: Any
    ) -> None:
        self.plan = built.plan
        self.specs = specs
        self.device = device
        self.constants = built.constants
        self.rows = {row[0]: row for row in self.plan.slots}
        self.numbers = {s.slot: k for k, s in enumerate(specs) if isinstance(s, NumberSpec)}
        self.steps = [
            part if isinstance(part, CallStep) else (part, compiler(part.kernel))
            for part in built.parts
        ]

    @property
    def fast(self) -> Any:
        """Itself: there is no shorter way."""
        return self

    def code(self) -> str:
        """The loop IR that the device's compiler was given."""
        from mortice_llvm.ir import text

        kernels = [step[0].kernel for step in self.steps if not isinstance(step, CallStep)]
        return "\n".join(["; loop IR", *dict.fromkeys(map(text, kernels))])

    def fits(self, inputs: tuple[Any, ...]) -> bool:
        """True if the inputs are as the plan was made for."""
        from ..specs import specs_of

        return specs_of(inputs) == self.specs

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        memory: dict[int, Any] = {}
        given = (*inputs, *self.constants)
        for n, _, kind, shape, strides, dtype, source in self.plan.slots:
            if kind == "input":
                memory[n] = given[source]
            elif kind != "result":
                memory[n] = mortice.empty_strided(
                    shape, strides, dtype=mortice_dtype(dtype), device=self.device
                )
        for step in self.steps:
            if isinstance(step, CallStep):
                self._call(step, memory, inputs)
            else:
                self._launch(*step, memory, inputs)
        seen: set[int] = set()
        out: list[Any] = []
        for kind, x in self.plan.outputs:
            if kind != "buffer":
                out.append(inputs[x] if kind == "input" else x)
            else:
                out.append(memory[x].clone() if x in seen else memory[x])
                seen.add(x)
        for number, *refusal in self.plan.checks:
            if bool(memory[number].any()):
                raise Refusal(*refusal).raised((*inputs, *self.constants))
        return tuple(out)

    def _launch(
        self, code: Code, run: Callable[..., None], memory: dict[int, Any], inputs: tuple[Any, ...]
    ) -> None:
        buffers: list[Any] = []
        numbers: list[Any] = []
        for p in code.params:
            if p[0] == "buffer":
                a = array(memory[p[1]])
                buffers.append((a.buffer, a.offset + p[2]))
            else:
                numbers.append(p[1] if p[0] == "int" else inputs[self.numbers[p[1]]])
        run(buffers, *numbers)

    def _call(self, step: CallStep, memory: dict[int, Any], inputs: tuple[Any, ...]) -> None:
        tensors = [memory[n] for n in step.args]

        def fill(x: Any) -> Any:
            if isinstance(x, tuple) and x and x[0] == "%":
                return tensors[x[1]]
            if isinstance(x, tuple) and x and x[0] == "number":
                return inputs[self.numbers[x[1]]]
            return [fill(y) for y in x] if isinstance(x, list) else x

        found = find_operator(step.target)(
            *map(fill, step.template), **{k: fill(v) for k, v in step.kwargs}
        )
        for number, t in zip(step.results, [found] if step.single else list(found)):
            if number >= 0:
                _, _, _, shape, strides, dtype, _ = self.rows[number]
                if tuple(t.stride()) != tuple(strides) and t.numel() > 1:
                    made = mortice.empty_strided(
                        shape, strides, dtype=mortice_dtype(dtype), device=self.device
                    )
                    t = made.copy_(t)
                memory[number] = t
