"""Named loggers over the standard library's logging, imported only when something logs.

``MORTICE_LOGS=plugins=debug`` (or ``config.logs``) turns a logger on and sends it to standard
error. Otherwise records go wherever the application sends the standard logger ``mortice.NAME``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

# Name -> what it logs. A part of mortice that begins to log adds its row.
LOGGERS: dict[str, str] = {
    "plugins": "directories scanned, plug-ins loaded or refused, probes",
    "graph": "compiling: each captured graph, and what is handed to the backend, as code",
    "guards": "what a call depends on that is replayed",
    "replay": "whether a function's calls are replayed, and why not",
    "recompiles": "why a place of a compiled function gets another graph",
    "graph_breaks": "why a graph ends before its function does, with the line",
    "fusion": "which operators a compile backend puts into one kernel, which not, and why",
    "output_code": "the code that a compile backend made",
}

_ready = False


def get_logger(name: str) -> logging.Logger:
    """The standard logger ``mortice.NAME``; ``name`` is one of LOGGERS."""
    if name not in LOGGERS:
        from .errors import InvalidValue, nearest

        raise InvalidValue(f"there is no logger {name!r}.{nearest(name, LOGGERS)}")
    import logging

    if not _ready:
        configure()
    return logging.getLogger(f"mortice.{name}")


def active(name: str) -> logging.Logger | None:
    """The logger if anybody could see its records, else None, without importing logging.

    For places where an import of logging would cost more than the work that is logged.
    """
    from . import config

    if config.logs is None and "logging" not in sys.modules:
        return None
    return get_logger(name)


def configure() -> None:
    """Apply ``config.logs``; called once by the first logger, and again when it is assigned."""
    global _ready
    _ready = True
    import logging

    from . import config

    levels = config.logs
    root = logging.getLogger("mortice")
    for handler in [h for h in root.handlers if isinstance(h, _handler_class())]:
        root.removeHandler(handler)
    for name in LOGGERS:
        logging.getLogger(f"mortice.{name}").setLevel(logging.NOTSET)
    if levels is None:
        return
    handler = _handler_class()()
    handler.setFormatter(logging.Formatter("%(name)s %(levelname)s: %(message)s"))
    root.addHandler(handler)
    for name in LOGGERS:
        level = levels.get(name, levels.get("all"))
        # a logger that was not asked for must not print what the handler would let through
        number = getattr(logging, level.upper()) if level else logging.WARNING
        logging.getLogger(f"mortice.{name}").setLevel(number)


def _handler_class() -> type[logging.Handler]:
    """Our own handler class, so that re-configuring takes away ours and no one else's."""
    global _StderrHandler
    if _StderrHandler is None:
        import logging

        class StderrHandler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                # sys.stderr is looked up each time: notebooks and tests replace it
                print(self.format(record), file=sys.stderr)

        _StderrHandler = StderrHandler
    return _StderrHandler


_StderrHandler: type[logging.Handler] | None = None
