"""The machine: a native function that checks guards and replays a call, by a program of words.

A program is a row of instructions of ``WIDTH`` words: an operation and its operands. Registers hold
borrowed references; an instruction whose check fails sends the whole call to the program's
``miss``, before anything has happened. No check runs a user's code. One step takes 1 to 2 ns, a
look-up in a dict about 10.
"""

from __future__ import annotations

from functools import cache

from mortice_llvm.cpython import Code

from .checking import WIDTH, Checking
from .ending import Ending

#: Words of the program's head, in this order, before the instructions.
HEAD = ("registers", "miss", "calls")

#: Operations by number: what their operands are. r, s: registers; p: an address or object.
OPERATIONS = (
    "done",  # what follows is the end of the checks: ``run``
    "form",  # n arguments by position; p: tuple of the names of the others, or 0
    "argument",  # r = argument k
    "constant",  # r = p
    "weak",  # r = what the weak reference p refers to; fails if it is gone
    "item",  # r = dict s [p], NULL if missing
    "present",  # r is not NULL
    "absent",  # r is NULL
    "instance_dict",  # r = s.__dict__
    "attribute",  # r = s.p, by a built-in descriptor
    "cell",  # r = contents of the cell s
    "element",  # r = list or tuple s [k]
    "is",  # r is p
    "same",  # r is s
    "differs",  # r is not s
    "type",  # type of r is p
    "int",  # r is an int equal to n
    "float",  # r is a float with the bits n
    "text",  # r is a str equal to p
    "length",  # list, tuple or dict r has n entries
    "keys",  # the keys of the dict r are those of the tuple p, the same objects in the same order
    "holds",  # the container r holds p: n = 1, or does not: n = 0
    "version",  # the type p has version n: nothing in it or its bases has changed
    "word",  # the word at p is n
    "tensor",  # r is as the block p says
    "ask",  # the Python function p says yes to (r, s)
    "ask_constant",  # the Python function p says yes to (s as a constant, r)
    "finish",  # result: Python function p of the tuple of the registers in the block s, n of them
    "run",  # outs = p(*registers in the block s), n of them
    "adopt",  # output k is a row-major tensor, else the call ends through ``settle``
    "settle",  # where: Python function p of (outs, tuple of the registers in block s, n of them)
    "one",  # result: output k
    "tuple",  # result: tuple of the outputs in the block p, n of them
    "list",  # result: list likewise
)
CODE = {name: k for k, name in enumerate(OPERATIONS)}


@cache
def machine() -> Code:
    """The text of the machine; the same for all programs, and so compiled once for all time."""
    return _Machine(Code("machine", reserved=1)).code


class _Machine(Checking, Ending):
    def __init__(self, code: Code) -> None:
        super().__init__(code)
        self._enter()
        for name in OPERATIONS:
            code.label(f"op_{name}")
            getattr(self, f"on_{name}")()
        self._leave()

    def _enter(self) -> None:
        code = self.code
        code.do(f"%head = bitcast ptr {code.reserved(0)} to ptr")
        count = code.field("%head", 0, "i64")
        code.do(f"%regs = alloca ptr, i64 {count}, align 8")
        code.do("%outs_slot = alloca ptr, align 8")
        code.do("%pad = alloca [4 x i64], align 8")
        code.do("store ptr null, ptr %outs_slot")
        code.do(f"%first = getelementptr i64, ptr %head, i64 {len(HEAD)}")
        code.do("br label %loop")
        code.label("next")
        code.do(f"%after = getelementptr i64, ptr %pc, i64 {WIDTH}")
        code.do("br label %loop")
        code.label("loop")
        code.do("%pc = phi ptr [%first, %0], [%after, %next]")
        code.do("%op = load i64, ptr %pc, align 8")
        for k in range(1, WIDTH):
            code.do(f"%at{k} = getelementptr i64, ptr %pc, i64 {k}")
            code.do(f"%n{k} = load i64, ptr %at{k}, align 8")
            code.do(f"%p{k} = inttoptr i64 %n{k} to ptr")
        cases = " ".join(f"i64 {k}, label %op_{name}" for name, k in CODE.items())
        code.do(f"switch i64 %op, label %miss [{cases}]")

    def _leave(self) -> None:
        code = self.code
        code.label("miss")
        code.call("PyErr_Clear")
        miss = code.field("%head", 8)
        code.do(f"ret ptr {code.call('PyObject_Vectorcall', miss, '%args', '%nargs', '%kwnames')}")
        code.label("fail")
        code.do("ret ptr null")

    def on_done(self) -> None:
        """Counts the call."""
        code = self.code
        calls = code.field("%head", 16, "i64")
        code.put("%head", 16, code.value(f"add i64 {calls}, 1"), "i64")
        self.go()
