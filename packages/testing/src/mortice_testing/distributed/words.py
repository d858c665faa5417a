"""Words between the ranks of a gang and its test, beside what is tested: files in its folder.

A test that must not depend on who is quicker lets one side tell a word, and the other await it.
They hold for one call: the next one that all ranks begin knows none of them.
"""

from __future__ import annotations

import os
import time

#: The variable that tells a gang's processes the folder.
FOLDER = "MORTICE_GANG_WORDS"
#: Seconds after which what was to be told is taken to be lost. It ends a hang and measures nothing.
PATIENCE = 60.0
_AGAIN = 0.005


class Words:
    """The words told in a folder; without one, in that of this rank's gang."""

    def __init__(self, folder: str | None = None) -> None:
        self._folder = os.environ[FOLDER] if folder is None else folder

    def tell(self, word: str) -> None:
        """Tell a word, which is also a file's name."""
        with open(os.path.join(self._folder, word), "w", encoding="utf-8"):
            pass

    def told(self, word: str) -> bool:
        """Whether somebody has told it."""
        return os.path.exists(os.path.join(self._folder, word))

    def hear(self, *words: str, patience: float = PATIENCE) -> None:
        """Wait until all are told; raises TimeoutError, which names those that are not."""
        end = time.monotonic() + patience
        while missing := [word for word in words if not self.told(word)]:
            if time.monotonic() > end:
                raise TimeoutError(f"nobody told {', '.join(missing)} within {patience:g} s")
            time.sleep(_AGAIN)

    def forget(self) -> None:
        """Forget all words."""
        for word in os.listdir(self._folder):
            os.unlink(os.path.join(self._folder, word))
