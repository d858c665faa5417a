"""The demo's two pictures, drawn with pillow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

INK, GRID, FAINT, RED = "#222222", "#dddddd", "#9db8d9", "#c0392b"
BLUE = "#1f5fa8"
# Drawn at twice the size and reduced: pillow's lines have no smooth edges of their own.
SCALE = 2


def font(size: int) -> Any:
    """Pillow's own font."""
    return ImageFont.load_default(size)


def loss_curve(losses: Sequence[float], steps_per_epoch: int) -> Image.Image:
    """Training loss of every step, on a logarithmic axis, with its average over one epoch."""
    width, height, left, right, top, bottom = 800 * SCALE, 480 * SCALE, 140, 40, 100, 130
    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    values = np.log10(np.maximum(np.asarray(losses, dtype=np.float64), 1e-12))
    low, high = np.floor(values.min()), np.ceil(values.max())

    def place(step: float, value: float) -> tuple[float, float]:
        x = left + (width - left - right) * step / max(len(losses) - 1, 1)
        y = top + (height - top - bottom) * (high - value) / (high - low)
        return x, y

    for power in range(int(low), int(high) + 1):
        _, y = place(0, power)
        draw.line([(left, y), (width - right, y)], fill=GRID, width=SCALE)
        draw.text((left - 16, y), f"{10.0**power:g}", INK, font(26), anchor="rm")
    epochs = len(losses) // steps_per_epoch
    for epoch in range(0, epochs + 1, max(1, epochs // 5)):
        x, _ = place(min(epoch * steps_per_epoch, len(losses) - 1), low)
        draw.line([(x, top), (x, height - bottom)], fill=GRID, width=SCALE)
        draw.text((x, height - bottom + 14), str(epoch), INK, font(26), anchor="mt")
    points = [place(step, value) for step, value in enumerate(values)]
    draw.line(points, fill=FAINT, width=2)
    kernel = np.ones(steps_per_epoch) / steps_per_epoch
    smooth = np.log10(np.convolve(np.asarray(losses), kernel, mode="valid"))
    offset = (steps_per_epoch - 1) / 2
    averaged = [place(step + offset, value) for step, value in enumerate(smooth)]
    draw.line(averaged, fill=BLUE, width=3 * SCALE, joint="curve")
    draw.text((left, 34), "Training loss (cross entropy)", INK, font(36))
    draw.text((width - right, 44), "each step", FAINT, font(28), anchor="ra")
    draw.text((width - right - 190, 44), "mean of an epoch", BLUE, font(28), anchor="ra")
    draw.text((width / 2, height - 24), "epoch", INK, font(28), anchor="ms")
    return image.resize((width // SCALE, height // SCALE), Image.Resampling.LANCZOS)


def wrong_answers(
    images: np.ndarray, digits: np.ndarray, guesses: np.ndarray, columns: int = 6, rows: int = 2
) -> Image.Image:
    """Up to ``columns * rows`` images (n, 8, 8) with what they are and what they were taken for."""
    shown = min(len(images), columns * rows)
    columns = max(min(columns, shown), 3)
    lines = max(1, -(-shown // columns))
    cell, head, picture = 150, 64, 120
    image = Image.new("RGB", (columns * cell, head + lines * (cell + 34)), "white")
    draw = ImageDraw.Draw(image)
    title = f"{len(images)} wrong" + (f", {shown} shown" if shown < len(images) else "")
    draw.text((15, 16), title if len(images) else "No wrong answers", INK, font(24))
    for i in range(shown):
        x, y = (i % columns) * cell + 15, head + (i // columns) * (cell + 34)
        pixels = (255 - images[i] * 255).round().astype(np.uint8)
        digit = Image.fromarray(pixels).resize((picture, picture), Image.Resampling.NEAREST)
        image.paste(digit, (x, y))
        draw.rectangle([x - 1, y - 1, x + picture, y + picture], outline=GRID)
        draw.text((x, y + picture + 8), f"is {digits[i]}", INK, font(18))
        draw.text(
            (x + picture, y + picture + 8), f"taken for {guesses[i]}", RED, font(18), anchor="ra"
        )
    return image
