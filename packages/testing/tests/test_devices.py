import gc

import pytest

import mortice
from mortice.testing import assert_close
from mortice_testing.devices import RefDevice


def x():
    return mortice.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])


def test_copies_there_and_back():
    r = x().to("ref")
    assert str(r.device) == "ref:0"
    assert_close(r.to("cpu"), x())
    assert_close(r.to("ref:1").to("cpu"), x())
    assert str(r.to("ref:1").device) == "ref:1"


def test_own_kernels_run():
    r = x().to("ref")
    assert_close((r + r * r).cpu(), x() + x() * x())
    assert_close(mortice.relu(r).cpu(), mortice.relu(x()))


def test_views_are_views():
    r = x().to("ref")
    t = r.t()
    assert tuple(t.shape) == (3, 2)
    assert_close((t + t).cpu(), x().t() + x().t())
    t.fill_(7.0)
    assert r.cpu().tolist() == [[7.0] * 3] * 2


def test_clone_does_not_share():
    r = x().to("ref")
    c = r.clone()
    c.zero_()
    assert_close(r.cpu(), x())
    assert c.cpu().tolist() == [[0.0] * 3] * 2


def test_missing_kernel_falls_back_loudly(monkeypatch):
    r = mortice.tensor([1, 2]).to("ref")  # ref's kernels are for floating dtypes
    with pytest.warns(UserWarning, match=r"mul\.Tensor has no kernel for device 'ref'"):
        assert (r * r).cpu().tolist() == [1, 4]
    monkeypatch.setattr(mortice.config, "fallback", "error")
    with pytest.raises(NotImplementedError, match="MORTICE_FALLBACK=error"):
        r * r


def test_no_third_device():
    with pytest.raises(RuntimeError, match=r"2 device\(s\) of type 'ref'"):
        x().to("ref:2")


def test_devices_do_not_mix():
    with pytest.raises(RuntimeError, match="same device"):
        x() + x().to("ref")


def test_memory_is_given_back():
    from mortice._dispatch.backends import runtime

    ref = runtime("ref")
    assert isinstance(ref, RefDevice)
    gc.collect()
    before = ref.live
    r = x().to("ref")
    assert ref.live == before + 24
    del r
    gc.collect()
    assert ref.live == before


def test_null_computes_nothing():
    n = x().to("null")
    assert tuple((n + n).shape) == (2, 3)
    assert (n + n).cpu().tolist() == [[0.0] * 3] * 2
