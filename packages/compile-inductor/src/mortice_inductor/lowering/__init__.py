"""From operators to values, by tables."""

from __future__ import annotations

from . import activation as _activation
from . import factory as _factory
from . import indexing as _indexing
from . import loss as _loss
from . import matrix as _matrix
from . import norm as _norm
from . import pointwise as _pointwise
from . import random as _random
from . import reduction as _reduction
from . import views as _views
from .registry import LOWERINGS, Fallback, lowers

__all__ = ["LOWERINGS", "Fallback", "lowers"]
