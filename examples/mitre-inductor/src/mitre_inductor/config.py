"""Options of the device, named ``mitre.<name>`` in ``mortice.compile(options=...)``."""

from __future__ import annotations

from mortice_inductor import ConfigModule, Option

config = ConfigModule(
    "mitre",
    "Options of the device mitre.",
    (
        Option("show_source", bool, False, "print every kernel that is generated"),
        Option("fused_multiply_add", bool, True, "round a * b + c once"),
    ),
)
