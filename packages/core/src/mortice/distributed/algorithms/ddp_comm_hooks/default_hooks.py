"""Hooks that average gradients, some in a narrower dtype.

A hook is ``hook(state, bucket) -> Future``; the state of these is a process group, or None for the
whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mortice._tensor.tensor import Tensor
from mortice._types import dtypes

from ... import collectives
from ...group import resolved
from ...parallel.buckets import GradBucket
from ...reduce_op import ReduceOp
from ...work import Future

Hook = Callable[[Any, GradBucket], Future]


def _averaged(group: Any, tensor: Tensor) -> Future:
    work = collectives.all_reduce(tensor, ReduceOp.AVG, resolved(group), async_op=True)
    assert work is not None
    return work.get_future()


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Future:
    """Average the bucket: what happens without a hook."""
    return _averaged(process_group, bucket.buffer()).then(lambda future: future.value()[0])


def _compressed(process_group: Any, bucket: GradBucket, dtype: Any) -> Future:
    buffer = bucket.buffer()

    def widen(future: Future) -> Tensor:
        return buffer.copy_(future.value()[0])

    return _averaged(process_group, buffer.to(dtype)).then(widen)


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Future:
    """Average the bucket in float16: half the bytes, 11 bits of precision, up to 65504."""
    return _compressed(process_group, bucket, dtypes.float16)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Future:
    """Average the bucket in bfloat16: half the bytes, 8 bits of precision, float32's range."""
    return _compressed(process_group, bucket, dtypes.bfloat16)


def _wrapper(hook: Hook, dtype: Any) -> Hook:
    def compressed(state: Any, bucket: GradBucket) -> Future:
        wide = bucket.buffer()
        bucket.set_buffer(wide.to(dtype))

        def widen(future: Future) -> Tensor:
            value = future.value()
            return wide.copy_(value[0] if isinstance(value, (list, tuple)) else value)

        return hook(state, bucket).then(widen)

    return compressed


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """Let another hook see the bucket in float16."""
    return _wrapper(hook, dtypes.float16)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """Let another hook see the bucket in bfloat16."""
    return _wrapper(hook, dtypes.bfloat16)
