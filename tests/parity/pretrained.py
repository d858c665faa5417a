"""The pretrained model of examples/minilm.py on mortice and on torch: the same embeddings.

    python tests/parity/pretrained.py

Exit status 1 if any number differs by more than 1e-5.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "examples")]

import checkout

checkout.use()

import minilm
import torch

import mortice

TOLERANCE = 1e-5
TEXTS = (
    *minilm.TEXTS,
    "Short.",
    "A longer sentence, with commas, numbers like 12345, and rare words: defenestration, übermorgen.",
)


def main() -> int:
    folder = minilm.model_folder()
    ours = minilm.embed(mortice, TEXTS, folder).numpy()
    theirs = minilm.embed(torch, TEXTS, folder).numpy()
    difference = float(abs(ours - theirs).max())
    print(f"{len(TEXTS)} embeddings, largest difference {difference:.1e} (at most {TOLERANCE:g})")
    return 0 if difference <= TOLERANCE else 1


if __name__ == "__main__":
    raise SystemExit(main())
