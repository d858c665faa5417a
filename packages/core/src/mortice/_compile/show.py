"""What is seen of compiling: ``MORTICE_LOGS=graph,fusion,output_code`` and ``MORTICE_DUMP=DIR``.

A backend may leave two texts: ``output_code`` (the code it made) and ``fusion`` (what it fused, and what
it could not). Each is an attribute of its result, or stands in ``gm.meta``, there perhaps as a function
that makes it when somebody wants to see it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

from mortice._base import config
from mortice._base.errors import ConfigError
from mortice._base.logging import active
from mortice.fx import GraphModule

_INFO = 20  # logging.INFO, without importing logging
_numbers = itertools.count()


def compiled(part: str, backend: str, gm: GraphModule, run: Callable[..., Any]) -> None:
    """Log and dump one graph that a backend has compiled."""
    title = f"{part} of {len(gm.graph.nodes)} nodes for backend {backend}"
    for logger, kind in (
        (active("graph"), "graph"),
        (active("fusion"), "fusion"),
        (active("output_code"), "output_code"),
    ):
        if logger is not None and logger.isEnabledFor(_INFO):
            if kind != "graph" and not _is_wanted(logger):
                continue  # a backend may run its passes again to make the text
            text = gm.code if kind == "graph" else text_of(kind, gm, run)
            if text:
                logger.info("%s\n%s", title, text)
    if config.dump is not None:
        _dump(config.dump, part, gm, run)


def _is_wanted(logger: Any) -> bool:
    """Whether a level was set for this logger or for ``mortice``, not for all that there is."""
    return bool(logger.level or (logger.parent is not None and logger.parent.level))


def text_of(kind: str, gm: GraphModule, run: Callable[..., Any]) -> str:
    """What a backend says of one graph, ``output_code`` or ``fusion``; empty if nothing."""
    found: Any = getattr(run, kind, None) or gm.meta.get(kind)
    found = found() if callable(found) else found
    return found if isinstance(found, str) else ""


def _dump(folder: str, part: str, gm: GraphModule, run: Callable[..., Any]) -> None:
    """Write ``PID-0003-forward/graph.py`` and the like; numbers go up within a process."""
    place = os.path.join(folder, f"{os.getpid()}-{next(_numbers):04}-{part}")
    try:
        os.makedirs(place, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"dump is {folder!r} ({config.origin('dump')}), and no directory can be made there: "
            f"{error.strerror}. Name another place, or unset it."
        ) from error
    from mortice.fx.drawing import draw

    files = {"graph.py": gm.code, "graph.txt": gm.graph.tabular(), "graph.svg": draw(gm, part)}
    files.update((f"{kind}.txt", text_of(kind, gm, run)) for kind in ("fusion", "output_code"))
    for name, text in files.items():
        if text:
            with open(os.path.join(place, name), "w", encoding="utf-8") as file:
                file.write(text)
