"""Loading entries: once, guarded, and with every failure turned into a state.

One lock per entry makes the first load happen once. A thread that is itself inside an import does
not wait for it: the loading thread may be waiting for that very import, and Python's own import
locks know how to break such circles where ours do not.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pluggy

from mortice._base.errors import ConfigError, PluginBroken, PluginError, Unavailable
from mortice._base.logging import active

from . import attempts, catalog, events, hookspecs, manifest, markers, probe, resolution
from .attempts import Attempt
from .entry import Entry, Status
from .groups import Group, group_of
from .metadata import parse_value

HANG_SECONDS = 10.0
# Kinds whose class is instantiated once when it is first used, and so in a probe, too.
MADE_KINDS = ("device", "serialization")
# What is the user's while a plug-in is loaded, and no state of it: the next use tries again.
_NOT_ITS_FAULT = (KeyboardInterrupt, ConfigError)


class Provider:
    """What is registered with pluggy: one fresh object per entry, so that one module can serve
    several names, and a hook can be called on one entry alone.
    """

    def __init__(self, entry: Entry, hooks: dict[str, Any]) -> None:
        self.entry = entry
        self.__dict__.update(hooks)


_hooks: pluggy.PluginManager | None = None


def load(group: str, name: str) -> Any:
    """What the entry ``name`` of ``group`` provides; raises the Plugin* error of its state."""
    row = group_of(group)
    found = attempts.ready.get((row.name, name))
    if found is None:
        found = attempts.ready[row.name, name] = _loaded(resolution.require(row, name))
    return found


def make(group: str, name: str) -> Any:
    """The one instance, in this process, of the class that the entry provides.

    Making it is part of using the plug-in: what it raises becomes the entry's state, as in a load.
    """
    entry = resolution.require(group_of(group), name)
    cls = _loaded(entry)
    record = _attempted(entry)
    if record.instance is None:
        with _turn(entry, record):
            if record.instance is None:
                record.instance = _made(entry, cls, record)
    return record.instance


def _made(entry: Entry, cls: type, record: Attempt) -> Any:
    try:
        return _guarded(entry, cls)
    except _NOT_ITS_FAULT:
        raise
    except BaseException as error:
        record.status, record.cause = _state_of(error, entry), error
        attempts.ready.pop((entry.group.name, entry.name), None)
        raise resolution.error_for(entry, record.status) from error


def load_entry(entry: Entry) -> Any:
    """As ``load``, for an entry from ``find``: how parts of one operator namespace are loaded."""
    status = resolution.status(entry, rivals(entry))
    if not status.usable:
        raise resolution.error_for(entry, status)
    return _loaded(entry)


def _loaded(entry: Entry) -> Any:
    record = _attempted(entry)
    if record.status is None or not record.status.usable:
        status = record.status or Status("broken", "its load was interrupted")
        raise resolution.error_for(entry, status)
    return record.result


def attempt(entry: Entry) -> Status:
    """Try to use the entry, and say in which state it then is, without raising."""
    refused = resolution.status(entry, rivals(entry))
    if not refused.usable:
        return refused
    try:
        _loaded(entry)
        if entry.group.kind in MADE_KINDS:
            make(entry.group.name, entry.name)
    except PluginError as error:
        return attempts.outcome(entry) or Status(error.state, str(error))
    except ConfigError as error:
        return Status("unavailable", str(error), "Correct that setting")
    return Status("ready")


def rivals(entry: Entry) -> list[Entry]:
    return [
        one if one.key != entry.key else entry
        for one in catalog.candidates(entry.group, entry.name)
    ]


# -- once ---------------------------------------------------------------------------------------


def _attempted(entry: Entry) -> Attempt:
    record = attempts.of(entry)
    if record.status is None:
        with _turn(entry, record) as waited:
            if record.status is None:
                _load_once(entry, record, waited=waited)
    return record


@contextmanager
def _turn(entry: Entry, record: Attempt) -> Generator[bool, None, None]:
    """This thread's turn to load or make; yields whether it is alone."""
    me = threading.get_ident()
    if me in record.running_in:
        raise PluginBroken(
            f"{entry.group.what} {entry.name!r} is used while it is being loaded: the code of "
            f"{entry.described()} asks for itself. Move that use out of its import and its hook."
        )
    waited = record.lock.acquire(blocking=False) or (not _inside_import() and record.lock.acquire())
    record.running_in.add(me)
    try:
        yield waited
    finally:
        record.running_in.discard(me)
        if waited:
            record.lock.release()


def _inside_import() -> bool:
    """Whether this thread is in the middle of importing some module."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _load_once(entry: Entry, record: Attempt, *, waited: bool) -> None:
    started = time.perf_counter()
    result, cause = None, None
    status = _needs(entry) or _probed_first(entry)
    if status is None:
        try:
            result = _guarded(entry, lambda: _provided(entry, _imported(entry)))
            status = Status("ready")
        except _NOT_ITS_FAULT:
            raise
        except BaseException as error:
            status, cause = _state_of(error, entry), error
    if record.status is not None:  # a thread that did not wait was here first
        return
    if cause is not None and (not waited or type(cause).__name__ == "_DeadlockError"):
        # Two threads import in a circle. That says nothing of the plug-in: the next use tries again.
        raise resolution.error_for(entry, status) from cause
    record.seconds = time.perf_counter() - started
    logger = active("plugins")
    if logger:
        logger.info("%s: %s in %.3f s", entry.described(), status, record.seconds)
    record.result, record.cause, record.status = result, cause, status
    if status.usable:
        _tell_loaded(entry, record.seconds)


def _needs(entry: Entry) -> Status | None:
    unmet = manifest.unmet_need(entry.row, libraries=True)
    return Status("unavailable", *unmet) if unmet else None


def _probed_first(entry: Entry) -> Status | None:
    """If the entry has killed a process that loaded it, let a child try it before we do."""
    crashed, _ = probe.last_crash(entry)
    if crashed is None and not markers.abandoned(entry, remove=False):
        return None
    if not probe.can_probe():
        return None
    result = probe.run(entry)
    markers.abandoned(entry, remove=True)
    return result.status if result.status.state == "crashed" else None


def _guarded(entry: Entry, work: Callable[[], Any]) -> Any:
    """Run the plug-in's code with a marker on disk and a watchdog on the clock."""
    with markers.loading(entry) as marker:
        watchdog = threading.Timer(HANG_SECONDS, _name_the_hang, (entry, marker))
        watchdog.daemon = True
        try:
            watchdog.start()
        except RuntimeError:  # no threads at interpreter shutdown: then without a watchdog
            watchdog.cancel()
        try:
            return work()
        finally:
            watchdog.cancel()


def _name_the_hang(entry: Entry, marker: markers.Marker) -> None:
    marker.keep = True  # so that, if the user gives up on it, the next process probes first
    print(
        f"mortice: loading {entry.group.what} {entry.name!r} from {entry.described()} has taken "
        f"{HANG_SECONDS:g} s and goes on. To work without it: "
        f"MORTICE_DISABLE_PLUGINS={entry.distribution.name or entry.name}",
        file=sys.stderr,
        flush=True,
    )


# -- what is loaded -----------------------------------------------------------------------------


def _imported(entry: Entry) -> Any:
    if entry.target is not None:
        return entry.target
    import importlib

    parsed = parse_value(entry.value)
    assert parsed is not None, "malformed values are refused before"
    module, attribute = parsed
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        # Perhaps it was installed while this process ran, and Python's finders have not looked.
        importlib.invalidate_caches()
        found = importlib.import_module(module)
    for name in attribute.split(".") if attribute else ():
        found = getattr(found, name)
    return found


def _provided(entry: Entry, target: Any) -> Any:
    """The class (or module, or command) that the loaded object provides for the entry's name."""
    kind = entry.group.kind
    if kind == "listener":
        _register(entry, target)
        return target
    if entry.group.hook is None:
        result = target
    elif entry.source == "registered" and not _has_hook(target, entry.group.hook):
        result = target  # the class itself, without a hook around it
    else:
        result = _asked(entry, target)
    mistake = unfit(entry.group, result)
    if mistake:
        raise _Unfit(f"it provides {mistake}")
    return result


def unfit(group: Group, result: Any) -> str:
    """What is wrong with an object as what an entry of the group provides; empty if it fits."""
    wanted, fits = _RESULTS[group.kind]
    return "" if fits(result) else f"{result!r}, and {wanted} is expected"


class _Unfit(Exception):
    """The object loaded is not what its group asks for."""


def _has_hook(target: Any, hook: str) -> bool:
    return hasattr(getattr(target, hook, None), "mortice_impl")


def _asked(entry: Entry, target: Any) -> Any:
    """Register the target's hook under the entry, and call it on that one entry."""
    hook = entry.group.hook
    assert hook is not None
    if not hasattr(target, hook):
        raise _Unfit(
            f"{entry.value or repr(target)} has no function {hook}(name); "
            "let the entry point name the module, or the object, that has it"
        )
    if not _has_hook(target, hook):
        raise _Unfit(f"its {hook} is not marked; put @mortice.backend.hookimpl before it")
    provider = _register(entry, target)
    caller = getattr(_manager().hook, hook)
    implementation = next(one for one in caller.get_hookimpls() if one.plugin is provider)
    arguments = {"name": entry.name}
    return implementation.function(*(arguments[name] for name in implementation.argnames))


def _register(entry: Entry, target: Any) -> Provider:
    """Validate the target in a throw-away manager, then register a fresh wrapper of its hooks."""
    trial = _new_manager()
    trial.register(target, "trial")
    trial.check_pending()
    marked = {name: getattr(target, name) for name in dir(target) if name.startswith("mortice_")}
    provider = Provider(
        entry, {name: value for name, value in marked.items() if hasattr(value, "mortice_impl")}
    )
    manager = _manager()
    name = ":".join((*entry.key, entry.distribution.version))
    with attempts.guard:
        if manager.has_plugin(name):  # registered anew under the same name
            manager.unregister(name=name)
        manager.register(provider, name)
    return provider


def _new_manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager("mortice")
    manager.add_hookspecs(hookspecs)
    return manager


def _manager() -> pluggy.PluginManager:
    """The manager that holds every loaded entry."""
    global _hooks
    with attempts.guard:
        if _hooks is None:
            _hooks = _new_manager()
        return _hooks


# -- events -------------------------------------------------------------------------------------


def emit(event: str, **facts: Any) -> None:
    """Call ``mortice_<event>`` of every listener."""
    if events.ready(load):
        events.tell(getattr(_manager().hook, f"mortice_{event}").get_hookimpls(), facts)


def _tell_loaded(entry: Entry, seconds: float) -> None:
    """Tell the listeners that an entry was loaded; a listener's own load is no event."""
    if entry.group.kind != "listener":
        emit(
            "plugin_loaded",
            kind=entry.group.kind,
            name=entry.name,
            distribution=entry.distribution.name,
            version=entry.distribution.version,
            seconds=seconds,
        )


# -- what fits ----------------------------------------------------------------------------------


def _is_class(result: Any) -> bool:
    return isinstance(result, type)


def _is_command(result: Any) -> bool:
    return callable(getattr(result, "main", None)) and callable(getattr(result, "invoke", None))


# kind -> (what is expected, in words; the test of it)
_RESULTS: dict[str, tuple[str, Any]] = {
    "device": ("a class", _is_class),
    "compile": ("a callable", callable),
    "distributed": ("a class", _is_class),
    "operators": ("an operator library", lambda result: result is not None),
    "serialization": ("a class", _is_class),
    "launcher": ("a class", _is_class),
    "module": ("a module", lambda result: isinstance(result, ModuleType)),
    "command": ("a click command", _is_command),
    "listener": ("an object with event hooks", lambda result: result is not None),
}


# -- failures -----------------------------------------------------------------------------------


def _state_of(error: BaseException, entry: Entry) -> Status:
    """The state that an exception during the load means."""
    if isinstance(error, Unavailable):
        return Status("unavailable", _text(error.reason), _text(error.fix))
    if isinstance(error, pluggy.PluginValidationError):
        reason = _text(error).partition("\n")[2] or _text(error)
        reason = f"its hooks do not fit: {' '.join(reason.split())}"
        return Status("incompatible", reason, resolution.authors_fix(entry))
    if isinstance(error, SystemExit):
        return Status("broken", f"it called sys.exit({error.code!r}) while being loaded")
    if isinstance(error, _Unfit):
        return Status("broken", _text(error), resolution.authors_fix(entry))
    if isinstance(error, ModuleNotFoundError) and error.name:
        return Status("broken", _missing_module(_text(error.name), entry))
    said = error.msg if isinstance(error, SyntaxError) else error
    text = " ".join(_text(said).split())
    reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return Status("broken", reason[:500] + _place(error))


def _text(value: Any) -> str:
    """``str(value)``, whose code may be the plug-in's and fail, too."""
    try:
        return str(value)
    except Exception as error:
        return f"(its text cannot be had: {type(error).__name__})"


def _missing_module(missing: str, entry: Entry) -> str:
    own = entry.value.partition(":")[0].strip()
    if own == missing or own.startswith(f"{missing}."):
        return f"its own module {missing} is not there"
    return f"it imports {missing}, which is not installed"


def _place(error: BaseException) -> str:
    """File and line where it was raised, the most useful thing for the plug-in's author."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}, line {error.lineno})"
    trace = error.__traceback__
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f" ({trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno})"
