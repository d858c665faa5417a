"""Make ``src/mortice_gloo/_thunk.py``: machine code that stands between Gloo and what it calls.

``thunk`` calls a C++ function without the GIL, ``patient`` gives the core away after a lock that
could not be had. The code is LLVM's, from the text below; it stands on nothing but the addresses in its slots,
so that it is placed by copying. ``python packages/dist-gloo/tools/thunk.py`` writes the module,
``--check`` proves that the committed one is current. Needs llvmlite.
"""

from __future__ import annotations

import base64
import struct
import sys
import textwrap
from pathlib import Path

OUTPUT = Path(__file__).resolve().parent.parent / "src" / "mortice_gloo" / "_thunk.py"

# The slots, in order: the functions of C++, Python and the system that the code calls.
SLOTS = ("target", "holds_gil", "release", "acquire", "personality", "resume", "yield")
FUNCTIONS = ("thunk", "patient")

TEXT = """
target triple = "x86_64-unknown-linux-gnu"
@slots = external hidden global [7 x ptr]
declare i32 @__gxx_personality_v0(...)

; Whoever comes here with the GIL gives it back for the time of the call, exceptions included.
define i64 @thunk(ptr %a, ptr %b, ptr %c, ptr %d) personality ptr @__gxx_personality_v0 {
  %target = load ptr, ptr @slots
  %p1 = getelementptr ptr, ptr @slots, i64 1
  %holds_gil = load ptr, ptr %p1
  %held = call i32 %holds_gil()
  %is_held = icmp ne i32 %held, 0
  br i1 %is_held, label %without, label %plain
plain:
  %r1 = tail call i64 %target(ptr %a, ptr %b, ptr %c, ptr %d)
  ret i64 %r1
without:
  %p2 = getelementptr ptr, ptr @slots, i64 2
  %release = load ptr, ptr %p2
  %state = call ptr %release()
  %p3 = getelementptr ptr, ptr @slots, i64 3
  %acquire = load ptr, ptr %p3
  %r2 = invoke i64 %target(ptr %a, ptr %b, ptr %c, ptr %d) to label %done unwind label %thrown
done:
  call void %acquire(ptr %state)
  ret i64 %r2
thrown:
  %e = landingpad { ptr, i32 } cleanup
  call void %acquire(ptr %state)
  resume { ptr, i32 } %e
}

; pthread_mutex_trylock for a thread that will be back at once: who has the lock may need the core.
define i32 @patient(ptr %lock) {
  %target = load ptr, ptr @slots
  %busy = call i32 %target(ptr %lock)
  %is_busy = icmp ne i32 %busy, 0
  br i1 %is_busy, label %give_way, label %done
give_way:
  %p6 = getelementptr ptr, ptr @slots, i64 6
  %yield = load ptr, ptr %p6
  %r = call i32 %yield()
  br label %done
done:
  ret i32 %busy
}
"""

_ALLOC = 2
_RELA, _SYMTAB = 4, 2
_PC32, _PLT32, _PC64 = 2, 4, 24


def compiled() -> bytes:
    """The object file of TEXT."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(
        cpu="x86-64", opt=2, reloc="pic", codemodel="small"
    )
    return machine.emit_object(llvm.parse_assembly(TEXT, llvm.create_context()))


def name_at(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()


def flattened(obj: bytes) -> dict[str, object]:
    """One position-independent image of the object's loaded sections, and offsets in it."""
    (table,) = struct.unpack_from("<Q", obj, 40)
    count, names = struct.unpack_from("<HH", obj, 60)
    heads = [struct.unpack_from("<IIQQQQIIQQ", obj, table + 64 * k) for k in range(count)]
    label = [name_at(obj, heads[names][4] + head[0]) for head in heads]
    image = bytearray()
    place: dict[int, int] = {}
    for k, (_, _, flags, _, offset, size, _, _, align, _) in enumerate(heads):
        # What the linker would make of the reference to the personality is a slot of ours.
        if flags & _ALLOC and size and not label[k].startswith(".data"):
            image += b"\0" * (-len(image) % max(align, 16))
            place[k] = len(image)
            image += obj[offset : offset + size]
            if label[k] == ".eh_frame":
                image += b"\0" * 4  # the end of the frames
    image += b"\0" * (-len(image) % 16)
    stub = len(image)
    image += b"\xff\x25" + struct.pack("<i", 16 + 8 * SLOTS.index("resume") - 6) + b"\0" * 10
    first = len(image)
    image += b"\0" * 8 * len(SLOTS)
    outside = {
        "slots": first,
        "DW.ref.__gxx_personality_v0": first + 8 * SLOTS.index("personality"),
        "_Unwind_Resume": stub,  # jmp *(slot)
    }
    symtab = next(head for head in heads if head[1] == _SYMTAB)
    texts = heads[symtab[6]][4]
    entries: dict[str, int] = {}
    for at in range(symtab[4], symtab[4] + symtab[5], 24):
        name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", obj, at)
        if name_at(obj, texts + name) in FUNCTIONS:
            entries[name_at(obj, texts + name)] = place[section] + value
    for head in heads:
        if head[1] != _RELA or head[7] not in place:
            continue
        for at in range(head[4], head[4] + head[5], 24):
            where, info, addend = struct.unpack_from("<QQq", obj, at)
            name, kind, _, section, value, _ = struct.unpack_from(
                "<IBBHQQ", obj, symtab[4] + 24 * (info >> 32)
            )
            text = name_at(obj, texts + name)
            target = outside[text] if text in outside else place[section] + value
            here = place[head[7]] + where
            kind = info & 0xFFFFFFFF
            if kind in (_PC32, _PLT32):
                struct.pack_into("<i", image, here, target + addend - here)
            elif kind == _PC64:
                struct.pack_into("<q", image, here, target + addend - here)
            else:
                raise SystemExit(f"relocation of kind {kind} to {text} in {label[head[7]]}")
    return {
        "image": bytes(image),
        "entries": entries,
        "frames": place[label.index(".eh_frame")],
        "slots": first,
    }


def module() -> str:
    """The text of the generated module."""
    parts = flattened(compiled())
    lines = textwrap.wrap(base64.b64encode(parts["image"]).decode(), 92)
    code = "\n".join(f'    "{line}"' for line in lines)
    return f'''"""Generated by tools/thunk.py, where the code stands as text: do not edit."""

from __future__ import annotations

import base64

#: Machine code for x86-64 and its unwind tables; goes anywhere, aligned to 16 bytes.
IMAGE = base64.b64decode(
{code}
)
#: Offsets in IMAGE: of the functions, of their frames, of the first slot.
THUNK = {parts["entries"]["thunk"]}
PATIENT = {parts["entries"]["patient"]}
FRAMES = {parts["frames"]}
SLOT = {parts["slots"]}
#: What the slots hold: addresses, in this order.
SLOTS = {SLOTS!r}
'''.replace("'", '"')


def main() -> int:
    if "--check" in sys.argv:
        return int(OUTPUT.read_text() != module())
    OUTPUT.write_text(module())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
