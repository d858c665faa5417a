"""Train the digits classifier of demo.py on several processes, and beside it in one.

    mortice run -n 2 examples/demo_distributed.py

Each rank takes its part of every batch; gradients are averaged by DistributedDataParallel. Without
BatchNorm and dropout that is the training of one process on whole batches, so rank 0 does that,
too, and compares the losses. Then the demo's own network is trained on all ranks and tested.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import mortice
import mortice.distributed as dist
from mortice import nn, optim
from mortice.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parent))
from demo import BATCH, GOAL, SEED, Net, accuracy, load_digits

COMPARED_STEPS = 60
EPOCHS = 15
# Sums of float32 in another order: each step's losses may differ by some roundings.
TOLERANCE = 1e-5


def plain() -> nn.Module:
    """A network whose loss on a batch is the mean of its loss on the batch's parts."""
    mortice.manual_seed(SEED)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def batches(count: int, epoch: int) -> list[mortice.Tensor]:
    """Places of the training images, the same on all ranks, in whole batches."""
    order = mortice.randperm(count, generator=mortice.Generator().manual_seed(SEED + epoch))
    return [order[at : at + BATCH] for at in range(0, count - BATCH + 1, BATCH)]


def own(batch: mortice.Tensor) -> mortice.Tensor:
    """This rank's part of a batch."""
    rank, size = dist.get_rank(), dist.get_world_size()
    return batch[rank * len(batch) // size : (rank + 1) * len(batch) // size]


def step(
    model: nn.Module, optimizer: optim.Optimizer, images: mortice.Tensor, digits: mortice.Tensor
) -> mortice.Tensor:
    """One step; returns the loss."""
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), digits)
    loss.backward()
    optimizer.step()
    return loss.detach()


def compared(images: mortice.Tensor, digits: mortice.Tensor) -> tuple[list[float], list[float]]:
    """The losses of training on all ranks, and of one process on the same batches."""
    places = [batch for epoch in range(9) for batch in batches(len(images), epoch)][:COMPARED_STEPS]
    together = DistributedDataParallel(plain())
    optimizer = optim.SGD(together.parameters(), lr=0.05, momentum=0.9)
    losses: list[float] = []
    for batch in places:
        mine = own(batch)
        loss = step(together, optimizer, images[mine], digits[mine])
        dist.all_reduce(loss, dist.ReduceOp.AVG)
        losses.append(loss.item())
    alone: list[float] = []
    if dist.get_rank() == 0:
        model = plain()
        optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        alone = [step(model, optimizer, images[b], digits[b]).item() for b in places]
    return losses, alone


def trained(images: mortice.Tensor, digits: mortice.Tensor) -> nn.Module:
    """The demo's network, trained on all ranks."""
    mortice.manual_seed(SEED)
    model = DistributedDataParallel(Net(), gradient_as_bucket_view=True)
    mortice.manual_seed(SEED + dist.get_rank())  # for dropout
    steps = EPOCHS * (len(images) // BATCH)
    optimizer = optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    for epoch in range(EPOCHS):
        for batch in batches(len(images), epoch):
            mine = own(batch)
            step(model, optimizer, images[mine], digits[mine])
            schedule.step()
    return model.module


def main() -> int:
    """Run the demo; the exit status is 0 on all ranks if all of it holds."""
    dist.init_process_group()
    training, test = load_digits()
    images, digits = training.tensors
    losses, alone = compared(images, digits)
    failed = False
    if dist.get_rank() == 0:
        worst = max(abs(a - b) for a, b in zip(losses, alone))
        print(
            f"{dist.get_world_size()} ranks over {dist.get_backend_config()}: {len(losses)} steps, "
            f"loss {losses[0]:.6f} to {losses[-1]:.6f}; one process {alone[0]:.6f} to "
            f"{alone[-1]:.6f}; largest difference {worst:.1e}"
        )
        failed = worst > TOLERANCE
    start = time.perf_counter()
    model = trained(images, digits)
    if dist.get_rank() == 0:
        score = accuracy(model, test)
        print(f"trained in {time.perf_counter() - start:.1f} s; test accuracy {score:.4f}")
        failed = failed or score < GOAL
    outcome = mortice.tensor([int(failed)])
    dist.broadcast(outcome, src=0)
    dist.destroy_process_group()
    return int(outcome.item())


if __name__ == "__main__":
    raise SystemExit(main())
