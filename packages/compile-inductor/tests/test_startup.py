"""What a process pays before its first result, counted: modules, objects, LLVM modules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mortice_llvm.runtime import library

PROGRAM = """
import json, sys
import mortice
x, y = mortice.arange(3000.0).reshape(50, 60) / 3000, mortice.arange(60.0)
f = mortice.compile(lambda x: x + 1, backend="inductor")
for _ in range(3):
    f(mortice.ones(3))  # the machinery that all functions share
import mortice_llvm.runtime.library as library
counts = {"objects": 0, "compiled": 0}
load_entry = library.load_entry
def loading(*args, **kwargs):
    counts["objects"] += 1
    return load_entry(*args, **kwargs)
library.load_entry = loading
if "mortice_llvm.runtime.compiler" in sys.modules:
    import mortice_llvm.runtime.compiler as compiler
    compile_parts = compiler.compile_parts
    def compiling(*args):
        counts["compiled"] += 1
        return compile_parts(*args)
    compiler.compile_parts = compiling
before = set(sys.modules)
g = mortice.compile(lambda x, y: (mortice.tanh(x * y + x), (x - y).sum(1)), backend="inductor")
for _ in range(4):
    out = g(x, y)
new, found = sorted(set(sys.modules) - before), dict(counts)
assert mortice.allclose(out[0], mortice.tanh(x * y + x), 1e-5, 1e-6)
assert mortice.allclose(out[1], (x - y).sum(1), 1e-4, 1e-4)
print(json.dumps({**found, "llvmlite": "llvmlite" in sys.modules, "new": new,
                  "compiler": "mortice_llvm.runtime.compiler" in sys.modules,
                  "replayed": g.verdict.replayed}))
"""


def _process(cache: Path, program: str = PROGRAM) -> dict[str, Any]:
    env = {**os.environ, "MORTICE_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_graph_costs_one_module_and_one_object(tmp_path: Path) -> None:
    """The native functions around its kernels are those of all graphs."""
    cold = _process(tmp_path)
    assert (cold["compiled"], cold["objects"], cold["replayed"]) == (1, 1, 3)
    warm = _process(tmp_path)
    assert (warm["compiled"], warm["objects"], warm["replayed"]) == (0, 1, 3)
    assert not warm["llvmlite"]
    assert not warm["compiler"]


def test_a_second_process_imports_no_pass(tmp_path: Path) -> None:
    _process(tmp_path)
    new = _process(tmp_path)["new"]
    assert not [name for name in new if name.startswith(("mortice_inductor", "mortice_llvm"))], new


PRODUCTS = """
import json, sys
import mortice
f = mortice.compile(lambda x: x + 1, backend="inductor")
for _ in range(3):
    f(mortice.ones(3))
x, w = mortice.randn(64, 96), mortice.randn(96, 128, requires_grad=True)
(x @ w).relu().sum().backward()
wanted, w.grad = w.grad, None
import mortice_inductor.runtime.code as code
import mortice_llvm.runtime.memory as memory
programs, mapped = [], []
program, new = code.Program, memory.new
code.Program = lambda *given: programs.append(program(*given)) or programs[-1]
memory.new = lambda size: mapped.append(size) or new(size)
before = set(sys.modules)
g = mortice.compile(lambda x, w: (x @ w).relu().sum(), backend="inductor")
g(x, w).backward()
new_modules, made = sorted(set(sys.modules) - before), [sorted(vars(p)) for p in programs]
assert mortice.allclose(w.grad, wanted, 1e-3, 1e-3)
print(json.dumps({"new": new_modules, "made": made, "mapped": len(mapped)}))
"""


def test_restored_programs_make_what_the_first_call_needs(tmp_path: Path) -> None:
    """A forward and a backward graph, and the tiles of their products."""
    _process(tmp_path, PRODUCTS)
    found = _process(tmp_path, PRODUCTS)
    ours = [name for name in found["new"] if name.startswith(("mortice_inductor", "mortice_llvm"))]
    assert not ours
    if library.loads_elf():
        assert found["mapped"] == 3, "an image for each graph, and one for the tiles"
    later = {"_tensors", "_steps", "_made", "_inputs", "_numbers", "_sources", "_others"}
    assert [later & set(names) for names in found["made"]] == [set(), set()]


MODEL = """
import mortice
import mortice.nn as nn
mortice.manual_seed(0)
model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(8, 8), nn.GELU())))
def loss(x):
    return model(x).sum()
def other(x):
    return nn.functional.gelu(x).sum()
"""
FIRST_CALL = """
import json, sys
import mortice
import model
from mortice._capture import instances
x = mortice.arange(24.0).reshape(3, 8) / 24
def compiled(function):
    others = set(map(id, instances.alive()))
    made = mortice.compile(function, backend="inductor")
    (own,) = [c for c in instances.alive() if id(c) not in others]
    return made, own
first, _ = compiled(model.other)  # the machinery that all functions share
for _ in range(3):
    first(x.clone().requires_grad_()).backward()
step, own = compiled(model.loss)
counts = []
def count(frame, event, what):
    counts[-1][0] += event == "call"
    counts[-1][1] += event == "c_call" and what in (compile, eval)
for _ in range(3):
    counts.append([0, 0])
    sys.setprofile(count)
    found = step(x)
    sys.setprofile(None)
    found.backward()
assert mortice.allclose(found, model.loss(x), 1e-4, 1e-4)
print(json.dumps({"kept": own.verdict.kept, "counts": counts,
                  "guards": len(own.replay.roots[0].stretch.guards)}))
"""


def test_a_plan_that_is_found_costs_few_calls_and_compiles_no_text(tmp_path: Path) -> None:
    """Python functions called for each guard of the plan; of text there is the code on disk."""
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    os.utime(file, (file.stat().st_mtime - 100,) * 2)  # older than the process
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{FIRST_CALL}"
    cold = _process(tmp_path / "cache", program)
    assert cold["kept"] == 0
    assert cold["counts"][0][1] > 0
    warm = _process(tmp_path / "cache", program)
    assert warm["kept"] == 1
    assert warm["guards"] == cold["guards"] > 60
    (calls, compiled), (_, again), _ = warm["counts"]
    assert (compiled, again) == (0, 0)
    assert calls < 25 * warm["guards"]
