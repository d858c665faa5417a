"""PyTorch's registration of one out-of-tree device, in processes of their own: it is for good."""

from __future__ import annotations

from typing import Any

CODE = """
import mortice
from mortice.utils import generate_methods_for_privateuse1_backend, rename_privateuse1_backend

@mortice.plugins.register("device", "npu")
class Npu(mortice.backend.DeviceRuntime):
    def count(self):
        return 2
    def allocate(self, nbytes, index):
        return bytearray(nbytes)
    def copy_in(self, buffer, offset, data):
        buffer[offset : offset + data.nbytes] = data.cast("B")
    def copy_out(self, buffer, offset, data):
        data.cast("B")[:] = buffer[offset : offset + data.nbytes]

def fails(function, *arguments):
    try:
        function(*arguments)
    except RuntimeError as error:
        print(error)
    else:
        raise SystemExit(f"{function} did not fail")
"""


def test_rename(site: Any) -> None:
    said = site.run(CODE + """
for name in ("cuda", "my-dev", "privateuseone"):
    fails(rename_privateuse1_backend, name)
rename_privateuse1_backend("npu")
rename_privateuse1_backend("npu")
fails(rename_privateuse1_backend, "tpu")
assert mortice.device("privateuseone:1") == mortice.device("npu:1")
x = mortice.ones(2, device="privateuseone")
print(x.device)
library = mortice.library.Library("aten", "IMPL")
library.impl("neg", lambda x: x.clone(), "PrivateUse1")
print((-x).tolist())
""")  # fmt: skip
    told = said.splitlines()
    assert "in-tree device name 'cuda'" in told[0]
    assert "'my-dev' is no identifier" in told[1]
    assert "already been set! Current backend: npu" in told[3]
    assert told[4:] == ["npu:0", "[1.0, 1.0]"]


def test_methods(site: Any) -> None:
    said = site.run(CODE + """
rename_privateuse1_backend("npu")
assert not hasattr(mortice.Tensor, "npu")
generate_methods_for_privateuse1_backend(for_storage=True)
generate_methods_for_privateuse1_backend(for_storage=True)  # once more is no harm
x = mortice.ones(2).npu(1)
print(x.device, x.is_npu, mortice.ones(2).is_npu)
print(x.cpu().untyped_storage().npu().device)
""")  # fmt: skip
    assert said.splitlines() == ["npu:1 True False", "npu:0"]


def test_methods_that_are_taken(site: Any) -> None:
    said = site.run(CODE + """
rename_privateuse1_backend("sum")
fails(generate_methods_for_privateuse1_backend)
""")  # fmt: skip
    assert "Tensor has an attribute 'sum' already" in said
