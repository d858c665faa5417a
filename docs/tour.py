"""A running tour of mortice: read it from top to bottom, or run it with ``python docs/tour.py``.

Every claim is an assertion, and the tests execute this file. It needs mortice, mortice-cpu and
mortice-nn. The places named in brackets are where the code for the step lives, under
``packages/core/src/mortice`` unless another package is named.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import mortice

# -- 1. Tensors [_tensor/tensor.py, _tensor/make.py] ------------------------------------------------
# A tensor is a handle (on the host: a numpy array) with a dtype, a key set and, once it is shared,
# a storage. The API is PyTorch's.

x = mortice.tensor([[1.0, 2.0], [3.0, 4.0]])
assert x.shape == (2, 2) and x.dtype is mortice.float32 and x.device == mortice.device("cpu")
assert (x + 1).tolist() == [[2.0, 3.0], [4.0, 5.0]]

# Host memory is shared both ways: no copies between numpy and mortice.
array = np.zeros(3, np.float32)
shared = mortice.from_numpy(array)
shared.add_(2)
assert array.tolist() == [2.0, 2.0, 2.0]

# -- 2. Views [_ops/view.py, _tensor/host.py] ---------------------------------------------------------
# A view sees its base's memory through other sizes and strides. Both share one storage, whose
# version counter counts in-place writes.

row = x[1]
row.mul_(10)
assert x.tolist() == [[1.0, 2.0], [30.0, 40.0]]
assert row._base is x and x._version == 1
assert x.t().stride() == (1, 2)

# -- 3. An operator, from its declaration to its kernel --------------------------------------------
# A stanza in _ops/<family>.yaml declares the schema and names the shape rule, the gradient, and
# whatever else holds on every device. The generator makes the Python function from it, with the
# dispatch in line [_generated/, gen/].

op = mortice.ops.aten.mul.Tensor
assert str(op._schema) == "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor"

# Its kernel for the host is in mortice-cpu (packages/backend-cpu), in the module of the same
# family; it was found by entry point when the first operator needed it. The device `meta` has no
# data and runs the shape rule alone.

sizes_only = mortice.empty(1000, 1, device="meta") * mortice.empty(1, 1000, device="meta")
assert sizes_only.shape == (1000, 1000) and sizes_only.device.type == "meta"

# Dispatch [_dispatch/operator.py]: the key sets of the arguments are or-ed; a dict per operator maps
# the result to a kernel, resolved at its first use. One bit is one functionality or one device.

from mortice._dispatch import keys

assert keys.describe(x._k) == "DispatchKeySet(CPU)"

# Errors are diagnosed after the fact [_dispatch/call.py]: the fast path checks nothing, and when a
# kernel fails, the schema and then the shape rule say precisely why.

try:
    mortice.add(mortice.ones(3), mortice.ones(2))
except RuntimeError as error:
    assert "must match the size of tensor b (2) at non-singleton dimension 0" in str(error)

# -- 4. Gradients [_autograd/] ----------------------------------------------------------------------
# Operators on tensors that require grad record nodes; the engine walks them backwards. Gradients
# are made of public operators, so they differentiate again.

w = mortice.tensor([3.0], requires_grad=True)
y = w * w * w
(first,) = mortice.autograd.grad(y, w, create_graph=True)
(second,) = mortice.autograd.grad(first, w)
assert first.item() == 27.0 and second.item() == 18.0

# In-place writes on views reach the base's history [_autograd/inplace.py].

base = mortice.zeros(3) + 0 * w
base[0] = w.squeeze() * 5
base.sum().backward()
assert w.grad is not None and w.grad.item() == 5.0

# What was saved for backward may not be written to: that is an error, not a wrong gradient.

a = mortice.ones(2, requires_grad=True)
b = a * 2
c = b * b
b.add_(1)
try:
    c.sum().backward()
except RuntimeError as error:
    assert "modified by an inplace operation" in str(error)

# -- 5. Watching and overriding [_dispatch/modes.py, overrides.py, utils/dispatch.py] ------------------
# A dispatch mode sees every operator that runs, composites taken apart, gradients included.

from mortice.utils.dispatch import MorticeDispatchMode


class Log(MorticeDispatchMode):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def __mortice_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


with Log() as log:
    mortice.linear(mortice.ones(1, 2), mortice.ones(3, 2))
assert log.seen[-1] == "aten.mm.default"

# -- 6. Sockets [_plugins/] -----------------------------------------------------------------------
# Everything that core does not do itself is a plug-in: a device, an operator library, a module
# such as mortice.nn. Listing them reads metadata only; each has a state and a reason.

names = {(entry.kind, entry.name) for entry in mortice.list_backends()}
assert ("device", "cpu") in names and ("module", "nn") in names

# A device is one class. This one keeps its memory in bytearrays and knows a single operator; core
# supplies the rest: copies, views, printing, and a fallback through the CPU that says so.

from mortice.backend import DeviceRuntime


class Pocket(DeviceRuntime):
    """A device whose memory the host cannot see into."""

    def count(self):
        return 1

    def allocate(self, nbytes, index):
        return bytearray(nbytes)

    def copy_in(self, buffer, offset, data):
        buffer[offset : offset + data.nbytes] = data.cast("B")

    def copy_out(self, buffer, offset, data):
        data.cast("B")[:] = buffer[offset : offset + data.nbytes]

    def kernel(self, op, dtypes):
        return negate if op == "neg" and dtypes == (mortice.float32,) else None


def negate(source, out):
    values = np.frombuffer(source.buffer.value, np.float32)
    np.frombuffer(out.buffer.value, np.float32)[:] = -values


mortice.plugins.register("device", "pocket", Pocket)  # a package does this by an entry point
there = mortice.tensor([1.0, -2.0]).to("pocket")
assert there.device.type == "pocket"
assert (-there).cpu().tolist() == [-1.0, 2.0]

# -- 7. Models [packages/nn] --------------------------------------------------------------------------
# mortice.nn, mortice.optim and mortice.utils.data are the package mortice-nn, under core's name.

from mortice import nn

mortice.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = mortice.optim.Adam(model.parameters(), lr=0.05)
inputs = mortice.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
targets = mortice.tensor([[0.0], [1.0], [1.0], [0.0]])
for _ in range(200):
    loss = nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
assert loss.item() < 0.01, loss.item()

# -- 8. Files [serialization/] -----------------------------------------------------------------------
# save and load write and read PyTorch's checkpoint format. Loading runs no code from the file.

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "xor.pt"
    mortice.save(model.state_dict(), path)
    state = mortice.load(path)
again = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
again.load_state_dict(state)
assert mortice.equal(again(inputs), model(inputs))

if __name__ == "__main__":
    print("The tour is through: every claim held.")
