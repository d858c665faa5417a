"""What is seen of compiling: ``MORTICE_LOGS=graph,fusion,output_code`` and ``MORTICE_DUMP=DIR``.

A backend's result may have the attributes ``output_code`` (the code it made, as text) and
``fusion`` (what it fused and what it could not, as text).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

from mortice._base import config
from mortice._base.logging import active
from mortice.fx import GraphModule

_numbers = itertools.count()


def compiled(part: str, backend: str, gm: GraphModule, run: Callable[..., Any]) -> None:
    """Log and dump one graph that a backend has compiled."""
    texts = {
        "graph": gm.code,
        "fusion": getattr(run, "fusion", None),
        "output_code": getattr(run, "output_code", None),
    }
    title = f"{part} of {len(gm.graph.nodes)} nodes for backend {backend}"
    for logger, kind in (
        (active("graph"), "graph"),
        (active("fusion"), "fusion"),
        (active("output_code"), "output_code"),
    ):
        if logger is not None and isinstance(texts[kind], str):
            logger.info("%s\n%s", title, texts[kind])
    if config.dump is not None:
        _dump(config.dump, part, gm, texts)


def _dump(folder: str, part: str, gm: GraphModule, texts: dict[str, Any]) -> None:
    """Write ``PID-0003-forward/graph.py`` and the like; numbers go up within a process."""
    place = os.path.join(folder, f"{os.getpid()}-{next(_numbers):04}-{part}")
    os.makedirs(place, exist_ok=True)
    from mortice.fx.drawing import draw

    files = {"graph.py": gm.code, "graph.txt": gm.graph.tabular(), "graph.svg": draw(gm, part)}
    files.update((f"{kind}.txt", texts[kind]) for kind in ("fusion", "output_code"))
    for name, text in files.items():
        if isinstance(text, str):
            with open(os.path.join(place, name), "w", encoding="utf-8") as file:
                file.write(text)
