"""``mortice run``: a script as a gang of ranks."""

from __future__ import annotations

import sys

import click


@click.command(
    "run",
    help="Run a script as several ranks that form a process group.\n\n"
    "    mortice run -n 4 train.py --epochs 3\n\n"
    "The script finds torchrun's variables (RANK, WORLD_SIZE, MASTER_ADDR, ...) and calls "
    "mortice.distributed.init_process_group().",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("-n", "--nproc-per-node", "processes", default=1, help="Ranks on each node.")
@click.option("--engine", default="local", help="Who starts them: local, mpi, slurm, or a plug-in.")
@click.option("--nnodes", "nodes", default=1, help="Machines that take part.")
@click.option("--node-rank", "node", default=0, help="Which of them this is.")
@click.option("--master-addr", "address", default="127.0.0.1", help="Address of node 0.")
@click.option("--master-port", "port", default=0, help="Port there; 0: any, on one node.")
@click.option("--max-restarts", default=0, help="How often all are started again after a failure.")
@click.option("--log-dir", help="Keep each rank's output in files there.")
@click.option("--rdzv-id", "run_id", default="mortice", help="A name that all nodes share.")
@click.option("--grace", default=10.0, help="Seconds between asking ranks to end and killing them.")
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
    from mortice.errors import MorticeError

    if processes < 1 or nodes < 1 or not 0 <= node < nodes:
        raise click.UsageError("--nproc-per-node and --nnodes are at least 1, --node-rank below.")
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
    try:
        status = load("mortice.launchers", engine)().run(job)
    except MorticeError as error:
        raise click.ClickException(str(error)) from error
    raise SystemExit(status)
