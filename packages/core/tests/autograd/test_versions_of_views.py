"""In-place views count as writes, whether a history is recorded or not."""

from __future__ import annotations

import pytest

import mortice

CALLS = [
    lambda x: x.unsqueeze_(0),
    lambda x: x.squeeze_(),
    lambda x: x.t_(),
    lambda x: x.transpose_(0, 1),
    lambda x: x.as_strided_((3,), (1,)),
]


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_versions(call, tracked) -> None:
    x = mortice.ones(1, 3, requires_grad=tracked) * 1
    call(x)
    assert x._version == 1


@pytest.mark.parametrize("call", CALLS)
def test_what_was_kept_of_it_is_known_to_have_changed(call) -> None:
    x = mortice.ones(1, 3, requires_grad=True) * 1
    y = x * x
    call(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
