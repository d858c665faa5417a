"""Configuration of inductor, as a module: read and set attributes, ``patch`` them for a while.

Values that are set hold for the whole process; those of ``patch`` for the code within (and what it
calls), in this thread. Names and types are checked. ``MORTICE_VALIDATE=1`` turns ``validate`` on.
"""

from __future__ import annotations

import os
import sys

from .options import ConfigModule, Option

#: What a variable may be for "yes"; that it is this or "no" was looked at when plug-ins were.
YES = ("1", "true", "yes", "on")
OPTIONS = (
    Option("fusion", bool, True, "put operators that share a loop into one kernel"),
    Option("recompute_cost", int, 10, "what costs more and is used twice is kept in memory"),
    Option("fusion_reach", int, 24, "how many kernels back an operator looks for one to join"),
    Option("fallback_random", bool, False, "leave random operators to the dispatcher"),
    Option("emulate_precision_casts", bool, False, "round to 16 bits wherever eager does"),
    Option("validate", bool, os.environ.get("MORTICE_VALIDATE", "").strip().lower() in YES,
           "compare each kernel's results with eager, and name the operator that differs"),
    Option("validate_tolerance", float, 1e-2, "how far, relative to the greatest element"),
    Option("graph_cache", bool, True, "keep compiled graphs on disk"),
    Option("post_grad_custom_pre_pass", object, None, "called with the graph before lowering"),
    Option("post_grad_custom_post_pass", object, None, "called with the graph after that"),
    Option("pre_fusion_custom_pass", object, None, "called with the values that get memory"),
    Option("post_fusion_custom_pass", object, None, "called with kernels and steps"),
)  # fmt: skip

_module = ConfigModule(__name__, __doc__ or "", OPTIONS)
_module.OPTIONS = OPTIONS
_module.__spec__ = __spec__
sys.modules[__name__] = _module
