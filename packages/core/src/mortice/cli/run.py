"""``mortice run``: a script as a gang of ranks."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from . import output

if TYPE_CHECKING:
    from mortice.distributed.launch import Job, Launcher


@click.command(
    "run",
    cls=output.StrictCommand,
    help="Run a script as several ranks that form a process group.\n\n"
    "    mortice run -n 4 train.py --epochs 3\n\n"
    "The script finds torchrun's variables (RANK, WORLD_SIZE, MASTER_ADDR, ...) and calls "
    "mortice.distributed.init_process_group().",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "-n",
    "--nproc-per-node",
    "processes",
    type=click.IntRange(1),
    default=1,
    help="Ranks on each node.",
)
@click.option("--engine", default="local", help="Who starts them: local, mpi, slurm, or a plug-in.")
@click.option(
    "--nnodes", "nodes", type=click.IntRange(1), default=1, help="Machines that take part."
)
@click.option(
    "--node-rank", "node", type=click.IntRange(0), default=0, help="Which of them this is."
)
@click.option("--master-addr", "address", default="127.0.0.1", help="Address of node 0.")
@click.option(
    "--master-port",
    "port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port there; 0: any, on one node.",
)
@click.option(
    "--max-restarts",
    type=click.IntRange(0),
    default=0,
    help="How often all are started again after a failure.",
)
@click.option("--log-dir", help="Keep each rank's output in files there.")
@click.option("--rdzv-id", "run_id", default="mortice", help="A name that all nodes share.")
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=10.0,
    help="Seconds between asking ranks to end and killing them.",
)
@click.option("--engine-option", "options", multiple=True, help="NAME=VALUE, for the engine.")
@click.option("-m", "--module", is_flag=True, help="SCRIPT is a module's name.")
@click.option("--no-python", is_flag=True, help="SCRIPT is a program.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    processes: int,
    engine: str,
    nodes: int,
    node: int,
    address: str,
    port: int,
    max_restarts: int,
    log_dir: str | None,
    run_id: str,
    grace: float,
    options: tuple[str, ...],
    module: bool,
    no_python: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run the job and exit with its status."""
    from mortice._plugins import load
    from mortice.distributed.launch import Job

    if node >= nodes:
        raise click.UsageError(f"--node-rank is {node}; expected less than --nnodes, {nodes}.")
    if nodes > 1 and engine == "local" and not port:
        raise click.UsageError("With several nodes, give --master-addr and --master-port.")
    python = [] if no_python else [sys.executable, "-u", *(["-m"] if module else [])]
    pairs = [option.partition("=") for option in options]
    if not all(equals for _, equals, _ in pairs):
        raise click.UsageError("--engine-option is NAME=VALUE.")
    job = Job(
        command=(*python, script, *arguments),
        processes=processes,
        nodes=nodes,
        node=node,
        address=address,
        port=port,
        max_restarts=max_restarts,
        log_dir=log_dir,
        grace=grace,
        run_id=run_id,
        options={name: value for name, _, value in pairs},
    )
    launcher: Launcher = load("mortice.launchers", engine)()
    _check_options(engine, launcher, job)
    if launcher.STARTS_HERE:
        _check_script(script, module=module, program=no_python)
    _make_log_dir(log_dir)
    raise SystemExit(launcher.run(job))


def _check_options(engine: str, launcher: Launcher, job: Job) -> None:
    from mortice._base.errors import nearest

    known = launcher.OPTIONS
    if known is None:
        return
    for name in job.options:
        if name not in known:
            hint = nearest(name, known) or f" It takes {', '.join(known) or 'none'}."
            raise click.UsageError(f"The engine {engine!r} has no option {name!r}.{hint}")


def _check_script(script: str, *, module: bool, program: bool) -> None:
    """Tell once of what no rank would find."""
    if program:
        if shutil.which(script) is None:
            raise click.UsageError(f"There is no program {script!r}, here or on PATH.")
    elif module:
        before = sys.path
        sys.path = [os.getcwd(), *sys.path]  # as `python -m` has it
        try:
            there = find_spec(script.partition(".")[0]) is not None
        except ValueError:  # a name without a module behind it, such as an empty one
            there = False
        finally:
            sys.path = before
        if not there:
            raise click.UsageError(f"There is no module {script!r}, here or installed.")
    elif not os.path.exists(script):
        raise click.UsageError(f"There is no script {script!r} in {os.getcwd()}.")


def _make_log_dir(path: str | None) -> None:
    from mortice.errors import ConfigError

    try:
        if path is not None:
            os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"--log-dir {path} cannot be made: {error.strerror}. Name a directory that can."
        ) from error
