"""A pickle read as data: opcodes are interpreted, nothing in the file is ever called here.

The loop knows the opcodes that PyTorch's own writer uses at protocol 2 and no others. Functions
named in the file are looked up in the tables of `rebuild`, whose rules turn their arguments into
descriptions (`specs`); a function that a user marked safe gives a `Call`, to be made only when the
whole pickle has been read and validated. Every opcode is charged for the memory it takes, so that a
small file cannot ask for much.

Format: protocol 2 of CPython's pickletools.py.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mortice.errors import CheckpointError
from mortice.serialization.bounds import Limits, hint
from mortice.serialization.specs import Call, Global, Spec

if TYPE_CHECKING:
    from mortice.serialization.names import Names

_INT32 = struct.Struct("<i")
_UINT32 = struct.Struct("<I")
_UINT16 = struct.Struct("<H")
_FLOAT = struct.Struct(">d")

_LONGEST_NAME = 1024
_SAME_HASH = 16
_KEY_NODES = 64
_DAMAGED = "The file is damaged or was not written by torch.save or mortice.save."

Place = Callable[[str, int, str], CheckpointError]


class Unpickler:
    """Reads one pickle that starts at ``start`` of ``data``; ``end`` is where it stopped.

    ``names`` resolves GLOBALs, ``persistent(pid, at)`` makes a description of a storage, and
    ``place(problem, offset, fix)`` makes the error that names the file. Raises CheckpointError.
    """

    __slots__ = (
        "at",
        "calls",
        "data",
        "encoding",
        "end",
        "hashes",
        "limits",
        "marks",
        "memo",
        "memory",
        "names",
        "opcodes",
        "persistent",
        "place",
        "result",
        "stack",
        "start",
    )

    def __init__(
        self,
        data: bytes,
        names: Names,
        persistent: Callable[[Unpickler, Any], Spec] | None,
        place: Place,
        limits: Limits,
        *,
        start: int = 0,
        encoding: str = "utf-8",
    ) -> None:
        self.data = data
        self.names = names
        self.persistent = persistent
        self.place = place
        self.limits = limits
        self.start = start
        self.encoding = encoding
        self.memory = limits.objects_memory
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.calls: list[Call] = []
        self.hashes: dict[tuple[int, int], int] = {}
        self.opcodes = 0
        self.at = start
        self.end = start
        self.result: Any = None

    def load(self) -> Any:
        """The data of the pickle, with descriptions where it has objects."""
        data, size = self.data, len(self.data)
        position = self.start
        count = 0
        try:
            while position >= 0:
                self.at = position
                if position >= size:
                    raise self.refuse("the pickle ends without STOP")
                opcode = data[position]
                self.memory -= _COSTS[opcode]
                if self.memory < 0:
                    raise self.over_memory()
                count += 1
                position = _HANDLERS[opcode](self, position + 1)
        except IndexError:
            raise self.refuse("an opcode needs more than the stack or the file holds") from None
        except struct.error:
            raise self.refuse("the pickle ends inside an opcode") from None
        self.opcodes = count
        return self.result

    def refuse(self, problem: str, fix: str = _DAMAGED) -> CheckpointError:
        """The error for the opcode being read."""
        return self.place(problem, self.at - self.start, fix)

    def over_memory(self) -> CheckpointError:
        return self.refuse(
            f"the objects take over {self.limits.objects_memory} bytes", hint("objects_memory")
        )

    def charge(self, amount: int) -> None:
        self.memory -= amount
        if self.memory < 0:
            raise self.over_memory()

    def pop_mark(self) -> list[Any]:
        """What was pushed since the last MARK."""
        items = self.stack
        self.stack = self.marks.pop()
        return items

    def check_key(self, key: Any, container: Any) -> None:
        """Refuse keys that do not hash, hash slowly, or are made to collide."""
        kind = type(key)
        if kind is str or kind is bool or key is None or kind is bytes or kind is float:
            return
        if kind is int:
            # Larger integers hash to their remainder: a file could make them all equal.
            if -(1 << 63) <= key < 1 << 64:
                return
            raise self.refuse(f"the key {key:#x} is no 64-bit integer", _DAMAGED)
        if isinstance(key, Spec):
            return
        if kind is not tuple and kind is not complex:
            raise self.refuse(f"a {kind.__name__} is no key of a dict or set")
        self._check_tuple(key)
        same = (id(container), hash(key))
        seen = self.hashes.get(same, 0) + 1
        if seen > _SAME_HASH:
            raise self.refuse("many keys with one hash, made to slow the reader down")
        self.hashes[same] = seen

    def _check_tuple(self, key: Any) -> None:
        left = _KEY_NODES
        pending = [key]
        while pending:
            item = pending.pop()
            left -= 1
            if left < 0:
                raise self.refuse(f"a key of more than {_KEY_NODES} parts")
            if type(item) is tuple:
                pending.extend(item)
            elif not (item is None or type(item) in _KEY_LEAVES or isinstance(item, Spec)):
                raise self.refuse(f"a {type(item).__name__} is no part of a key")


_KEY_LEAVES = frozenset((str, bytes, int, float, bool, complex))

_Handler = Callable[[Unpickler, int], int]


def describe(value: Any) -> str:
    """A short name of a piece of data, for messages."""
    if isinstance(value, Global):
        return f"the function or class {value.name}"
    return f"a {value.kind}" if isinstance(value, Spec) else f"a {type(value).__name__}"


# -- values ------------------------------------------------------------------------------------


def _push(value: Any) -> _Handler:
    def handler(u: Unpickler, at: int) -> int:
        u.stack.append(value)
        return at

    return handler


def _push_new(make: Callable[[], Any]) -> _Handler:
    def handler(u: Unpickler, at: int) -> int:
        u.stack.append(make())
        return at

    return handler


def _binint1(u: Unpickler, at: int) -> int:
    u.stack.append(u.data[at])
    return at + 1


def _packed(layout: struct.Struct) -> _Handler:
    def handler(u: Unpickler, at: int) -> int:
        u.stack.append(layout.unpack_from(u.data, at)[0])
        return at + layout.size

    return handler


def _take(u: Unpickler, at: int, length: int) -> bytes:
    piece = u.data[at : at + length]
    if len(piece) != length:
        raise u.refuse(f"{length} bytes expected, {len(piece)} are left in the pickle")
    return piece


def _long1(u: Unpickler, at: int) -> int:
    length = u.data[at]
    u.charge(length)
    u.stack.append(int.from_bytes(_take(u, at + 1, length), "little", signed=True))
    return at + 1 + length


def _binunicode(u: Unpickler, at: int) -> int:
    length = _UINT32.unpack_from(u.data, at)[0]
    at += 4
    try:
        text = _take(u, at, length).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise u.refuse(f"a string is not UTF-8 ({error.reason})") from None
    if length > 64:
        u.charge(text.__sizeof__())
    u.stack.append(text)
    return at + length


def _short_binstring(u: Unpickler, at: int) -> int:
    length = u.data[at]
    raw = _take(u, at + 1, length)
    u.charge(length)
    if u.encoding == "bytes":
        u.stack.append(raw)
    else:
        try:
            u.stack.append(raw.decode(u.encoding))
        except UnicodeDecodeError as error:
            raise u.refuse(
                f"a byte string of Python 2 is not {u.encoding} ({error.reason})",
                "Pass encoding='latin1' or encoding='bytes' to load.",
            ) from None
    return at + 1 + length


# -- stack and memo ----------------------------------------------------------------------------


def _proto(u: Unpickler, at: int) -> int:
    version = u.data[at]
    if version != 2:
        raise u.refuse(
            f"pickle protocol {version}; checkpoints are protocol 2",
            "Save it again with pickle_protocol=2 (the default of torch.save and mortice.save).",
        )
    return at + 1


def _stop(u: Unpickler, at: int) -> int:
    if u.marks or len(u.stack) != 1:
        raise u.refuse("STOP with more or less than one object on the stack")
    u.result = u.stack.pop()
    u.end = at
    return -1


def _mark(u: Unpickler, at: int) -> int:
    u.marks.append(u.stack)
    u.stack = []
    if len(u.marks) > 4 * u.limits.depth:
        raise u.refuse(f"more than {4 * u.limits.depth} open MARKs", hint("depth"))
    return at


def _get(u: Unpickler, index: int, at: int) -> int:
    try:
        u.stack.append(u.memo[index])
    except KeyError:
        raise u.refuse(f"memo entry {index} is read before it is written") from None
    return at


def _binget(u: Unpickler, at: int) -> int:
    return _get(u, u.data[at], at + 1)


def _long_binget(u: Unpickler, at: int) -> int:
    return _get(u, _UINT32.unpack_from(u.data, at)[0], at + 4)


def _binput(u: Unpickler, at: int) -> int:
    u.memo[u.data[at]] = u.stack[-1]
    return at + 1


def _long_binput(u: Unpickler, at: int) -> int:
    u.memo[_UINT32.unpack_from(u.data, at)[0]] = u.stack[-1]
    return at + 4


def _tuple(u: Unpickler, at: int) -> int:
    items = u.pop_mark()
    u.stack.append(tuple(items))
    return at


def _tuple_of(length: int) -> _Handler:
    def handler(u: Unpickler, at: int) -> int:
        stack = u.stack
        if len(stack) < length:
            raise u.refuse("an opcode needs more than the stack holds")
        stack[-length:] = [tuple(stack[-length:])]
        return at

    return handler


# -- containers --------------------------------------------------------------------------------


def _append(u: Unpickler, at: int) -> int:
    item = u.stack.pop()
    _list(u).append(item)
    return at


def _appends(u: Unpickler, at: int) -> int:
    items = u.pop_mark()
    _list(u).extend(items)
    return at


def _list(u: Unpickler) -> list[Any]:
    target = u.stack[-1]
    if type(target) is not list:
        raise u.refuse(f"APPEND to {describe(target)}; only lists take it")
    return target


def _setitem(u: Unpickler, at: int) -> int:
    value = u.stack.pop()
    key = u.stack.pop()
    target = _dict(u)
    u.check_key(key, target)
    target[key] = value
    return at


def _setitems(u: Unpickler, at: int) -> int:
    items = u.pop_mark()
    target = _dict(u)
    if len(items) % 2:
        raise u.refuse("SETITEMS with a key without a value")
    u.charge(64 * len(items))
    for index in range(0, len(items), 2):
        key = items[index]
        if type(key) is not str:
            u.check_key(key, target)
        target[key] = items[index + 1]
    return at


def _dict(u: Unpickler) -> dict[Any, Any]:
    target = u.stack[-1]
    kind = type(target)
    if kind is not dict and kind is not OrderedDict and kind is not Counter:
        raise u.refuse(f"SETITEM on {describe(target)}; only dict, OrderedDict and Counter take it")
    return target


# -- what pickle would call --------------------------------------------------------------------


def _global(u: Unpickler, at: int) -> int:
    parts: list[str] = []
    for _ in range(2):
        end = u.data.find(b"\n", at, at + _LONGEST_NAME)
        if end < 0:
            raise u.refuse("a GLOBAL name without an end")
        try:
            parts.append(u.data[at:end].decode("utf-8"))
        except UnicodeDecodeError:
            raise u.refuse("a GLOBAL name is not UTF-8") from None
        if not parts[-1].isprintable():
            raise u.refuse("a GLOBAL name with control characters")
        at = end + 1
    u.stack.append(u.names.find(u, parts[0], parts[1]))
    return at


def _persid(u: Unpickler, at: int) -> int:
    pid = u.stack.pop()
    if u.persistent is None:
        raise u.refuse("a persistent id where no storage can be")
    u.stack.append(u.persistent(u, pid))
    return at


def _arguments(u: Unpickler, opcode: str) -> tuple[Global, tuple[Any, ...]]:
    args = u.stack.pop()
    func = u.stack[-1]
    if type(args) is not tuple:
        raise u.refuse(f"{opcode} with {describe(args)} for arguments")
    if type(func) is not Global:
        raise u.refuse(f"{opcode} calls {describe(func)}, which is no function of the file")
    return func, args


def _reduce(u: Unpickler, at: int) -> int:
    func, args = _arguments(u, "REDUCE")
    u.stack[-1] = func.rule(u, args) if func.rule is not None else _call(u, func, args, False)
    return at


def _newobj(u: Unpickler, at: int) -> int:
    cls, args = _arguments(u, "NEWOBJ")
    if cls.rule is None:
        u.stack[-1] = _call(u, cls, args, True)
        return at
    if cls.name not in NEW_BY_RULE:
        raise u.refuse(f"NEWOBJ of {cls.name}")
    u.stack[-1] = cls.rule(u, args)
    return at


# Classes of ours that pickle may make by NEWOBJ as well as by REDUCE, with the same arguments.
NEW_BY_RULE = frozenset(
    ("torch.nn.parameter.Parameter", "collections.OrderedDict", "collections.Counter")
)


def _call(u: Unpickler, func: Global, args: tuple[Any, ...], new: bool) -> Call:
    call = Call(func, args, new, u.at - u.start)
    u.calls.append(call)
    return call


def _build(u: Unpickler, at: int) -> int:
    state = u.stack.pop()
    target = u.stack[-1]
    kind = type(target)
    if kind is Call:
        target.states.append((u.at - u.start, state))
    elif kind is OrderedDict or kind is Counter:
        check_state(u, state, kind)
        target.__dict__.update(state)
    else:
        raise u.refuse(
            f"BUILD on {describe(target)}; OrderedDict, Counter and classes marked safe take it"
        )
    return at


def check_state(u: Unpickler, state: Any, cls: type | None) -> None:
    """Attributes for an object: a dict from names that hide nothing of ``cls``."""
    if type(state) is not dict and type(state) is not OrderedDict:
        raise u.refuse(f"attributes given as {describe(state)}, not as a dict")
    for name in state:
        if type(name) is not str:
            raise u.refuse(f"an attribute is named by {describe(name)}, not by a string")
        if (name.startswith("__") and name.endswith("__")) or (
            cls is not None and hasattr(cls, name)
        ):
            raise u.refuse(f"the attribute {name!r} would hide one of the class's own")


def _unsupported(u: Unpickler, at: int) -> int:
    opcode = u.data[at - 1]
    import pickletools

    known = {info.code: info.name for info in pickletools.opcodes}.get(chr(opcode))
    name = f"{known} " if known else ""
    raise u.refuse(
        f"opcode {name}(0x{opcode:02x}) is not one that a checkpoint uses",
        "Save it again with torch.save or mortice.save and their default pickle_protocol.",
    )


# opcode -> (handler, bytes of memory it may take)
_TABLE: dict[bytes, tuple[_Handler, int]] = {
    b"\x80": (_proto, 0),
    b".": (_stop, 0),
    b"(": (_mark, 88),
    b"N": (_push(None), 16),
    b"\x88": (_push(True), 16),
    b"\x89": (_push(False), 16),
    b")": (_push(()), 16),
    b"]": (_push_new(list), 96),
    b"}": (_push_new(dict), 96),
    b"\x8f": (_push_new(set), 240),
    b"K": (_binint1, 16),
    b"M": (_packed(_UINT16), 48),
    b"J": (_packed(_INT32), 48),
    b"G": (_packed(_FLOAT), 48),
    b"\x8a": (_long1, 64),
    b"X": (_binunicode, 96),
    b"U": (_short_binstring, 96),
    b"h": (_binget, 16),
    b"j": (_long_binget, 16),
    b"q": (_binput, 0),
    b"r": (_long_binput, 128),
    b"t": (_tuple, 64),
    b"\x85": (_tuple_of(1), 64),
    b"\x86": (_tuple_of(2), 64),
    b"\x87": (_tuple_of(3), 72),
    b"a": (_append, 16),
    b"e": (_appends, 16),
    b"s": (_setitem, 128),
    b"u": (_setitems, 16),
    b"c": (_global, 320),
    b"Q": (_persid, 320),
    b"R": (_reduce, 320),
    b"\x81": (_newobj, 320),
    b"b": (_build, 320),
}

_HANDLERS: list[_Handler] = [_unsupported] * 256
_COSTS: list[int] = [0] * 256
for _opcode, (_handler, _cost) in _TABLE.items():
    _HANDLERS[_opcode[0]] = _handler
    _COSTS[_opcode[0]] = _cost
