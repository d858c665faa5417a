"""Data parallel training: gradients averaged over ranks while backward goes on.

``mortice.nn.parallel.DistributedDataParallel`` wraps a module around it.
"""

from __future__ import annotations

from .buckets import Bucket, GradBucket
from .reducer import Reducer

__all__ = ["Bucket", "GradBucket", "Reducer"]
