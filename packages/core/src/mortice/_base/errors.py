"""Every error that mortice raises, each also the builtin that PyTorch raises there.

A message names what was wrong (operator, argument position, plug-in or file offset), what was
expected and found, and ends with what to do.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class MorticeError(Exception):
    """Base of all errors raised by mortice."""


# -- operators and tensors ---------------------------------------------------------------------


class ArgumentError(MorticeError, TypeError):
    """An argument's type, count or name does not fit an operator's schema."""


class SchemaMismatch(MorticeError, RuntimeError):
    """As ArgumentError, where PyTorch raises RuntimeError (calls through ``mortice.ops``)."""


class ShapeError(MorticeError, RuntimeError):
    """Sizes or strides do not fit the operator."""


class DTypeError(MorticeError, RuntimeError):
    """A dtype is not supported by the operator, or cannot be cast as asked."""


class DimensionError(MorticeError, IndexError):
    """A dimension or index is out of range."""


class InvalidValue(MorticeError, ValueError):
    """A value is outside what the function accepts."""


class RangeError(MorticeError, RuntimeError):
    """As InvalidValue, where PyTorch raises RuntimeError: an option outside what is accepted."""


class InvalidState(MorticeError, RuntimeError):
    """The call is not possible in the present state; PyTorch raises RuntimeError there."""


class DeviceError(MorticeError, RuntimeError):
    """Tensors on devices that cannot be combined, or a device that is not there."""


class GuardOnDataDependent(MorticeError, RuntimeError):
    """A decision needs a size that depends on the values of a tensor that has none here."""


class DataDependentOutput(MorticeError, RuntimeError):
    """An operator's result is a value, or has a shape, that sizes and dtypes alone do not tell.

    ``operator`` is its qualified name, where one is known.
    """

    operator: str | None = None


class DynamicOutputShape(DataDependentOutput):
    """The shape of an operator's result depends on values, and no ShapeEnv is there to name it."""


class FakeTensorError(MorticeError, RuntimeError):
    """A tensor without data meets what needs data: real tensors, numpy, a pointer."""


class NoKernel(MorticeError, NotImplementedError):
    """No installed package provides the operator for this device and dtype."""


class AutogradError(MorticeError, RuntimeError):
    """A gradient cannot be computed as asked."""


class UnknownName(MorticeError, AttributeError):
    """No such operator, module or attribute."""


class TraceError(MorticeError, ValueError):
    """A program cannot be traced: it needs a value that is not there while it is traced."""


class ExportError(MorticeError, RuntimeError):
    """A program cannot be exported as asked, or an exported program cannot be read or written."""


class InputGuardError(MorticeError, AssertionError):
    """An exported program is called with inputs unlike those that it was exported for."""


# -- declaration and registration --------------------------------------------------------------


class SchemaError(MorticeError, RuntimeError):
    """An operator schema cannot be parsed or is not valid."""


class RegistrationError(MorticeError, RuntimeError):
    """A registration contradicts an earlier one or an operator's declaration."""


class ConfigError(MorticeError, ValueError):
    """An environment variable, config file or option has an unusable name or value."""


# -- compiling ---------------------------------------------------------------------------------


class CompileError(MorticeError, RuntimeError):
    """A function cannot be compiled, or its compiled form cannot be used as asked."""


class GraphBreak(CompileError):
    """With ``fullgraph=True``: a function needs a value before it ends. Names the line."""


class OptionError(ConfigError, RuntimeError):
    """A compile backend's option, or mode, is misspelt or has an unusable value."""


class BackendFailed(CompileError):
    """A compile backend raised, or returned what cannot be called; its error is the cause."""


# -- plug-ins ----------------------------------------------------------------------------------


class PluginError(MorticeError, RuntimeError):
    """A plug-in cannot be used. ``state`` is the state shown by ``mortice why``."""

    state = "broken"


class PluginNotFound(PluginError):
    state = "not found"


class PluginDisabled(PluginError):
    state = "disabled"


class PluginIncompatible(PluginError):
    state = "incompatible"


class PluginConflict(PluginError):
    state = "conflict"


class PluginCrashed(PluginError):
    state = "crashed"


class PluginBroken(PluginError):
    state = "broken"


class PluginUnavailable(PluginError):
    state = "unavailable"


class PluginImportError(PluginError, ImportError):
    """``import mortice.NAME`` of a plug-in's module that cannot be used."""


class Unavailable(MorticeError, RuntimeError):
    """Raised by a plug-in whose hardware or library is missing.

    ``reason`` says what is missing; ``fix`` is what to type or install.
    """

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason if not fix else f"{reason}. {fix}")
        self.reason = reason
        self.fix = fix


# -- distributed -------------------------------------------------------------------------------


class DistError(MorticeError, RuntimeError):
    """Base of the errors of ``mortice.distributed``."""


class DistNetworkError(DistError):
    """A connection cannot be made or broke. ``errno`` is the system's number, where there is one."""

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


class DistStoreError(DistError):
    """A store cannot do what was asked."""


class StoreTimeout(DistStoreError, TimeoutError):
    """Keys did not appear in time. ``keys`` are those that are missing."""

    def __init__(self, message: str, keys: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.keys = keys


class DistBackendError(DistError):
    """An operation of a group failed.

    ``operation`` and ``sequence`` say which, ``rank`` where, ``gone`` which ranks have ended.
    """

    def __init__(
        self,
        message: str,
        *,
        operation: str = "",
        sequence: int = 0,
        rank: int = -1,
        gone: tuple[int, ...] = (),
    ) -> None:
        super().__init__(message)
        self.operation = operation
        self.sequence = sequence
        self.rank = rank
        self.gone = gone


class OperationTimeout(DistBackendError, TimeoutError):
    """An operation of a group did not end in time."""


class NotAGroup(MorticeError, ValueError):
    """There is no process group yet, or this process is not a member of the one given."""


# -- files -------------------------------------------------------------------------------------


class CheckpointError(MorticeError, RuntimeError):
    """A checkpoint is damaged, unsafe or not understood. The message says where in the file.

    ``path`` is the file, ``record`` the record inside it, ``offset`` the byte inside that record,
    ``file_offset`` the byte of the file (each None where unknown), ``fix`` what to do about it.
    """

    def __init__(
        self,
        problem: str,
        *,
        path: str | None = None,
        record: str | None = None,
        offset: int | None = None,
        file_offset: int | None = None,
        fix: str = "",
    ) -> None:
        places: list[str] = []
        if path is not None:
            places.append(f"file {path!r}")
        if record is not None:
            inside = "" if offset is None else f"byte {offset} of "
            places.append(f"{inside}record {record!r}")
        if file_offset is not None:
            places.append(f"byte {file_offset} of the file")
        where = ", ".join(places)
        message = f"{problem} ({where})." if where else f"{problem}."
        super().__init__(f"{message} {fix}" if fix else message)
        self.problem = problem
        self.path = path
        self.record = record
        self.offset = offset
        self.file_offset = file_offset
        self.fix = fix


class StateDictError(MorticeError, RuntimeError):
    """The names or sizes of a state_dict do not fit the module or optimizer it is loaded into."""


def nearest(name: str, choices: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` for the closest of ``choices``, or an empty string."""
    import difflib

    found = difflib.get_close_matches(name, list(choices), n=1, cutoff=0.6)
    return f" Did you mean {found[0]!r}?" if found else ""
