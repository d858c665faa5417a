"""Train a small convolutional network on real handwritten digits, from installed packages alone.

    python examples/demo.py                     train twice, eagerly and compiled; test, draw,
                                                save, load again elsewhere
    python examples/demo.py --evaluate FILE     load a state_dict and print its test accuracy

Everything written goes to the folder ``demo-output`` (``--output``). Beside mortice with its
packages for the CPU, nn and inductor it needs pillow, for the pictures.
"""

from __future__ import annotations

import argparse
import gzip
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import mortice
from mortice import nn, optim
from mortice.utils.data import DataLoader, TensorDataset

HERE = Path(__file__).resolve().parent
DATA = HERE / "data" / "digits.csv.gz"
SEED = 0
TEST_IMAGES = 360
EPOCHS = 15
BATCH = 64
GOAL = 0.97

# Products of 8 x 8 images are too small to share out; on a busy machine threads would only wait
# for each other.
mortice.config.num_threads = 1


def load_digits() -> tuple[TensorDataset, TensorDataset]:
    """The 1,797 UCI digits as (image, digit) pairs, shuffled and split for training and testing.

    Images are float32 (1, 8, 8) from 0 to 1.
    """
    with gzip.open(DATA, "rt", encoding="ascii") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int64)
    images = mortice.from_numpy(table[:, :64].astype(np.float32) / 16).reshape(-1, 1, 8, 8)
    digits = mortice.from_numpy(table[:, 64].copy())
    order = mortice.randperm(len(table), generator=mortice.Generator().manual_seed(SEED))
    test, train = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return (
        TensorDataset(images[train], digits[train]),
        TensorDataset(images[test], digits[test]),
    )


class Net(nn.Module):
    """Three convolutions and a linear layer; 8 x 8 images to 10 scores."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classify = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(256, 10))

    def forward(self, images: mortice.Tensor) -> mortice.Tensor:
        return self.classify(self.features(images))


def train(
    model: Net, data: TensorDataset, console: Console, compiled: bool = False
) -> tuple[list[float], float]:
    """Train ``model``; returns the loss of every step, and the seconds that the median step took.

    Compiled, the loss and its gradients are machine code made for this model.
    """

    def loss_of(images: mortice.Tensor, digits: mortice.Tensor) -> mortice.Tensor:
        return nn.functional.cross_entropy(model(images), digits)

    if compiled:
        loss_of = mortice.compile(loss_of)
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    steps = EPOCHS * len(loader)
    optimizer = optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    losses: list[float] = []
    times: list[float] = []
    columns = (
        TextColumn("training compiled" if compiled else "training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps, loss {task.fields[loss]:.4f}"),
        TimeElapsedColumn(),
    )
    model.train()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("training", total=steps, loss=math.nan)
        for _ in range(EPOCHS):
            for images, digits in loader:
                begun = time.perf_counter()
                optimizer.zero_grad()
                loss = loss_of(images, digits)
                loss.backward()
                optimizer.step()
                schedule.step()
                losses.append(loss.item())
                times.append(time.perf_counter() - begun)
                progress.update(task, advance=1, loss=losses[-1])
    return losses, statistics.median(times)


def predict(model: Net, data: TensorDataset) -> mortice.Tensor:
    """The digit that ``model`` sees in each image of ``data``, as int64."""
    model.eval()
    with mortice.no_grad():
        return mortice.cat([model(x).argmax(1) for x, _ in DataLoader(data, batch_size=256)])


def accuracy(model: Net, data: TensorDataset) -> float:
    """The share of ``data`` that ``model`` gets right."""
    right = predict(model, data) == data.tensors[1]
    return int(right.sum().item()) / len(data)


def evaluate(file: str) -> float:
    """Test accuracy of the state_dict in ``file``."""
    model = Net()
    model.load_state_dict(mortice.load(file))
    return accuracy(model, load_digits()[1])


def draw(folder: Path, model: Net, data: TensorDataset, losses: list[float]) -> list[Path]:
    """Write the loss curve, and the images that ``model`` gets wrong, as PNG files."""
    sys.path.insert(0, str(HERE))
    from demo_pictures import loss_curve, wrong_answers

    guesses = predict(model, data).numpy()
    images, digits = (tensor.numpy() for tensor in data.tensors)
    wrong = np.flatnonzero(guesses != digits)
    curve, answers = folder / "loss.png", folder / "wrong-answers.png"
    loss_curve(losses, len(losses) // EPOCHS).save(curve)
    wrong_answers(images[wrong, 0], digits[wrong], guesses[wrong]).save(answers)
    return [curve, answers]


def train_compiled(
    training: TensorDataset, test: TensorDataset, eager_step: float, console: Console
) -> float:
    """Train the same model compiled; prints how its step compares, and returns its accuracy."""
    mortice.manual_seed(SEED)
    model = Net()
    start = time.perf_counter()
    _, step = train(model, training, console, compiled=True)
    seconds = time.perf_counter() - start
    score = accuracy(model, test)
    console.print(
        f"trained compiled in {seconds:.1f} s, compilation included; test accuracy {score:.4f}\n"
        f"median step: {eager_step * 1e3:.2f} ms eager, {step * 1e3:.2f} ms compiled, "
        f"ratio {step / eager_step:.2f}",
        highlight=False,
    )
    return score


def main() -> int:
    """Run the demo; the exit status is 0 if all of it holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--evaluate", metavar="FILE", help="only print this state_dict's accuracy")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where to write")
    options = parser.parse_args()
    if options.evaluate:
        print(repr(evaluate(options.evaluate)))
        return 0

    console = Console()
    command = [sys.executable, "-m", "mortice", "list-backends"]
    console.print("$ mortice list-backends", style="bold", highlight=False)
    sys.stdout.flush()
    subprocess.run(command, check=True)

    mortice.manual_seed(SEED)
    training, test = load_digits()
    model = Net()
    count = sum(parameter.numel() for parameter in model.parameters())
    console.print(
        f"\n{len(training)} digits to train on, {len(test)} to test, {count:,} parameters",
        highlight=False,
    )
    start = time.perf_counter()
    losses, step = train(model, training, console)
    seconds = time.perf_counter() - start
    score = accuracy(model, test)
    console.print(f"trained in {seconds:.1f} s; test accuracy {score:.4f}", highlight=False)
    compiled_score = train_compiled(training, test, step, console)

    options.output.mkdir(parents=True, exist_ok=True)
    for picture in draw(options.output, model, test, losses):
        console.print(f"wrote {picture}", highlight=False)
    file = options.output / "digits.pt"
    mortice.save(model.state_dict(), file)
    console.print(f"wrote {file}", highlight=False)

    again = subprocess.run(
        [sys.executable, __file__, "--evaluate", str(file)],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    loaded = float(again.stdout)
    console.print(f"loaded in a new process: test accuracy {loaded:.4f}", highlight=False)
    if loaded != score:
        console.print(f"the loaded model differs: {loaded} instead of {score}", style="red")
        return 1
    for found in (score, compiled_score):
        if found < GOAL:
            console.print(f"accuracy {found:.4f} is below {GOAL}", style="red")
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
