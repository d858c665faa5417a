"""The sockets: every entry-point group, as one table.

To add a socket, add a row here and, if it has a hook, its specification in ``hookspecs.py``.
"""

from __future__ import annotations

from mortice._base.errors import PluginNotFound, nearest

# Goes up when a hook's specification changes so that an implementation of the old one would no
# longer do; adding a hook, or an argument, leaves it (pluggy passes only what is named).
HOOK_API_VERSION = 1


class Group:
    """One row: an entry-point group.

    ``kind`` is its short name on the command line and in policy; ``hook`` the name of the hook
    whose implementation an entry provides, or None where the entry is itself the thing wanted.
    """

    __slots__ = ("hook", "kind", "loaded_when", "name", "what")

    def __init__(self, name: str, kind: str, hook: str | None, what: str, loaded_when: str) -> None:
        self.name = name
        self.kind = kind
        self.hook = hook
        self.what = what
        self.loaded_when = loaded_when


GROUPS: dict[str, Group] = {
    group.name: group
    for group in (
        Group(
            "mortice.devices",
            "device",
            "mortice_device",
            "device type",
            "a tensor or runtime of that device type is first made",
        ),
        Group(
            "mortice.compile_backends",
            "compile",
            "mortice_compile_backend",
            "compile backend",
            "`compile(backend=...)` looks it up",
        ),
        Group(
            "mortice.distributed_backends",
            "distributed",
            "mortice_distributed_backend",
            "distributed backend",
            "a process group asks for it",
        ),
        Group(
            "mortice.operators",
            "operators",
            "mortice_operators",
            "operator library",
            "`mortice.ops.<ns>` is first used, or a device that its manifest names is loaded",
        ),
        Group(
            "mortice.serialization",
            "serialization",
            "mortice_serialization_tag",
            "location tag",
            "a validated file, or a save, needs that tag",
        ),
        Group(
            "mortice.launchers",
            "launcher",
            "mortice_launcher",
            "launch engine",
            "`mortice run --engine` asks for it",
        ),
        Group(
            "mortice.modules",
            "module",
            None,
            "module",
            "`mortice.<name>` or `import mortice.<name>` is executed",
        ),
        Group(
            "mortice.commands",
            "command",
            None,
            "command",
            "that command runs",
        ),
        Group(
            "mortice.listeners",
            "listener",
            None,
            "listener",
            "the first event happens, if `config.listeners` names it",
        ),
    )
}

KINDS: dict[str, Group] = {group.kind: group for group in GROUPS.values()}

# The names of core's own commands: those of cli/root.py, which stands on a higher floor.
CORE_COMMANDS = (
    "list-backends",
    "plugins",
    "why",
    "doctor",
    "run",
    "explain",
    "gen",
    "inspect",
    "convert",
)

# What else core has, by kind: nobody may provide these. The operators of core's namespaces, devices
# and locations that are part of every process. (A part of a namespace, ``aten:npu``, is free.)
CORE_NAMES: dict[str, tuple[str, ...]] = {
    "command": CORE_COMMANDS,
    "device": ("meta",),
    "operators": ("aten", "prims", "prim"),
    "serialization": ("cpu", "meta"),
}

# Tags that keep an entry out of lists unless everything is asked for.
HIDDEN_TAGS = ("debug", "experimental")

# Who provides the names people ask for most, for the message when they are not installed.
PROVIDERS: dict[tuple[str, str], str] = {
    ("device", "cpu"): "mortice-cpu",
    ("compile", "inductor"): "mortice-inductor",
    ("distributed", "gloo"): "mortice-gloo",
    ("distributed", "mpi"): "mortice-mpi",
    ("distributed", "nccl"): "mortice-nccl",
    ("distributed", "nccl-legacy"): "mortice-nccl",
    ("distributed", "nccl2"): "mortice-nccl",
    ("distributed", "nccl-lazy"): "mortice-nccl",
    ("distributed", "nccl4py"): "mortice-nccl",
    ("distributed", "ucc"): "mortice-ucc",
    ("distributed", "xccl"): "mortice-xccl",
    ("launcher", "ray"): "mortice-ray",
    ("module", "nn"): "mortice-nn",
    ("module", "optim"): "mortice-nn",
    ("module", "utils.data"): "mortice-nn",
    ("module", "amp"): "mortice-nn",
    ("module", "testing"): "mortice-testing",
}


def group_of(name: str) -> Group:
    """The row for a group's full name or its kind; PluginNotFound for anything else."""
    group = GROUPS.get(name) or KINDS.get(name)
    if group is None:
        known = (*KINDS, *GROUPS)
        hint = nearest(name, known) or f" Known kinds: {', '.join(KINDS)}."
        raise PluginNotFound(f"there is no kind of plug-in called {name!r}.{hint}")
    return group


def install_command(distribution: str) -> str:
    """What to type to install one of our own packages, and what it needs of the others.

    Their names are not registered on the public index, where somebody else could take them, so
    all are named by the path of their wheel; what they need of others comes from the index.
    """
    return "pip install wheelhouse/mortice*.whl"


def not_installed_hint(kind: str, name: str) -> str:
    """`` It comes with ...`` for a well-known name, else an empty string."""
    provider = PROVIDERS.get((kind, name))
    if provider is None:
        return ""
    return (
        f" It comes with the package {provider}: {install_command(provider)} "
        "(wheelhouse: the directory that `python3 dev.py build` fills)."
    )
