"""Named loggers over the standard library's logging, imported only when something logs.

``MORTICE_LOGS=plugins=debug`` (or ``config.logs``) turns a logger on and sends it to standard
error. Otherwise records go wherever the application sends the standard logger ``mortice.NAME``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from . import config
from .errors import InvalidValue, nearest
from .knobs import LOGGERS

if TYPE_CHECKING:
    import logging

_ready = False


def get_logger(name: str) -> logging.Logger:
    """The standard logger ``mortice.NAME``; ``name`` is one of LOGGERS."""
    if name not in LOGGERS:
        raise InvalidValue(f"there is no logger {name!r}.{nearest(name, LOGGERS)}")
    import logging

    if not _ready:
        configure()
    return logging.getLogger(f"mortice.{name}")


def active(name: str) -> logging.Logger | None:
    """The logger if anybody could see its records, else None, without importing logging.

    For places where an import of logging would cost more than the work that is logged.
    """
    if config.logs is None and "logging" not in sys.modules:
        return None
    return get_logger(name)


def configure() -> None:
    """Apply ``config.logs``; called once by the first logger, and again when it is assigned."""
    global _ready
    _ready = True
    import logging

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

config.on_assignment("logs", configure)
