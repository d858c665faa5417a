"""The ``mortice`` command.

Exit status: 0 if all is well, 1 if what was asked about cannot be used or has problems, 2 if the
question itself was wrong (usage, unknown names, unusable configuration), 130 after Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with ``arguments`` (default: the process's), and exit."""
    from mortice.errors import ConfigError, MorticeError, PluginNotFound

    for stream in (sys.stdout, sys.stderr):
        # names and reasons may hold characters that the pipe's encoding lacks
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    from .root import cli

    try:
        cli.main(args=None if arguments is None else list(arguments), prog_name="mortice")
    except (ConfigError, PluginNotFound) as error:
        _fail(error, 2)
    except MorticeError as error:
        _fail(error, 1)


def _fail(error: Exception, status: int) -> None:
    print(f"mortice: {error}", file=sys.stderr)
    raise SystemExit(status)
