"""``mortice.config``: every knob as an attribute; see docs/configuration.md."""

import sys

from ._base import config

# One module object under both names, so that assignment works through either.
sys.modules[__name__] = config
