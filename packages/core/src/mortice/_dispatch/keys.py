"""Key sets: Python ints whose low bits are functionalities and whose high bits are devices.

Names and order of the functionalities are PyTorch's (the first is tried first). Above them every
device type has one bit, given out when the type is first mentioned, without loading anything.
"""

from __future__ import annotations

from collections.abc import Iterator

from mortice._base.errors import RegistrationError, nearest

#: From the highest priority to the lowest.
FUNCTIONALITIES = (
    "Override",  # __mortice_function__ subclasses and modes
    "PreDispatch",
    "FuncTorchDynamicLayerFrontMode",
    "FuncTorchBatched",
    "Autocast",
    "Record",  # a compiled call appends a node instead of running
    "Autograd",
    "ADInplaceOrView",
    "View",  # the tensor is a view: its grad_fn may be older than its base's
    "ZeroTensor",
    "Negative",
    "Conjugate",
    "Functionalize",
    "Mode",  # __mortice_dispatch__ modes
    "Python",  # __mortice_dispatch__ subclasses
    "BackendSelect",
    "BelowAutograd",  # autograd was excluded on purpose, not merely not needed
)

BITS: dict[str, int] = {
    name: 1 << (len(FUNCTIONALITIES) - 1 - i) for i, name in enumerate(FUNCTIONALITIES)
}
OVERRIDE = BITS["Override"]
MODE = BITS["Mode"]
AUTOCAST = BITS["Autocast"]
AUTOGRAD = BITS["Autograd"]
VIEW = BITS["View"]
PYTHON = BITS["Python"]
RECORD = BITS["Record"]
BELOW_AUTOGRAD = BITS["BelowAutograd"]

#: Tensors without data stand for data on a device. The bit lies among the devices', so that views
#: and detached tensors keep it.
FAKE = 1 << len(FUNCTIONALITIES)

FIRST_DEVICE = len(FUNCTIONALITIES) + 1
FUNCTIONALITY_MASK = FAKE - 1

#: Alias keys stand for several table entries; they never occur in a key set.
ALIASES = (
    "CompositeExplicitAutogradNonFunctional",
    "CompositeExplicitAutograd",
    "CompositeImplicitAutograd",
    "Autograd",
)

_DEVICES: list[str] = []
_DEVICE_BITS: dict[str, int] = {}

#: PyTorch's spelling of device keys, where it is not the capitalised device type.
_KEY_NAMES = {
    "cpu": "CPU",
    "cuda": "CUDA",
    "meta": "Meta",
    "xpu": "XPU",
    "mps": "MPS",
    "hpu": "HPU",
    "ipu": "IPU",
    "mtia": "MTIA",
    "privateuseone": "PrivateUse1",
}


#: Spellings of PyTorch that stand for a device by another name: "PrivateUse1" -> "npu".
ALIASED_DEVICES: dict[str, str] = {}


def device_bit(device_type: str) -> int:
    """The bit of a device type; reserved now if this is its first mention."""
    bit = _DEVICE_BITS.get(device_type)
    if bit is None:
        bit = 1 << (FIRST_DEVICE + len(_DEVICES))
        _DEVICES.append(device_type)
        _DEVICE_BITS[device_type] = bit
    return bit


CPU = device_bit("cpu")
META = device_bit("meta")
CPU_VIEW = CPU | VIEW


def devices_in(keys: int) -> Iterator[str]:
    """The device types whose bits are in ``keys``."""
    bits = keys >> FIRST_DEVICE
    position = 0
    while bits:
        if bits & 1:
            yield _DEVICES[position]
        bits >>= 1
        position += 1


def device_key_name(device_type: str) -> str:
    """``"cpu"`` -> ``"CPU"``, ``"npu"`` -> ``"NPU"``."""
    return _KEY_NAMES.get(device_type) or (
        device_type.upper() if len(device_type) <= 4 else device_type.capitalize()
    )


def canonical(key: str) -> str:
    """A dispatch key under the name that tables know: "AutogradPrivateUse1" -> "AutogradNPU"."""
    for alias, device_type in ALIASED_DEVICES.items():
        if key.endswith(alias):
            return key[: -len(alias)] + device_key_name(device_type)
    return key


def parse_key(name: str) -> tuple[str, str | None]:
    """Split a dispatch key's name into (functionality or alias or "", device type or None).

    ``"CPU"`` -> ("", "cpu"); ``"AutogradNPU"`` -> ("Autograd", "npu"); ``"Autograd"`` ->
    ("Autograd", None).
    """
    if name in ALIASES or name in BITS:
        return name, None
    for functionality in ("Autograd", "Autocast"):
        if name.startswith(functionality):
            return functionality, _device_named(name[len(functionality) :])
    return "", _device_named(name)


def _device_named(key: str) -> str:
    if key in ALIASED_DEVICES:
        return ALIASED_DEVICES[key]
    for device_type in _DEVICES:
        if device_key_name(device_type) == key:
            return device_type
    for device_type, spelling in _KEY_NAMES.items():
        if spelling == key:
            device_bit(device_type)
            return device_type
    known = [*ALIASES, *BITS, *(device_key_name(d) for d in _DEVICES)]
    raise RegistrationError(f"could not parse dispatch key: {key!r}.{nearest(key, known)}")


#: Key set -> its description, and the other way. Bits name devices for as long as the process lives, and
#: other ones in each process.
_TEXTS: dict[int, str] = {}
_SETS: dict[str, int] = {}


def describe(keys: int) -> str:
    """``DispatchKeySet(Autograd, CPU)``, highest priority first."""
    text = _TEXTS.get(keys)
    if text is None:
        names = [n for n in FUNCTIONALITIES if keys & BITS[n]]
        names += ["Fake"] if keys & FAKE else []
        names += [device_key_name(d) for d in devices_in(keys)]
        text = _TEXTS[keys] = f"DispatchKeySet({', '.join(names)})"
    return text


def described(text: str) -> int:
    """The key set that ``describe`` said; devices that were not mentioned yet get their bits now."""
    found = _SETS.get(text)
    if found is not None:
        return found
    keys = 0
    for name in filter(None, text[len("DispatchKeySet(") : -1].split(", ")):
        if name in BITS:
            keys |= BITS[name]
        else:
            keys |= FAKE if name == "Fake" else device_bit(_DEVICE_TYPES.get(name, name.lower()))
    _SETS[text] = keys
    return keys


_DEVICE_TYPES = {name: device_type for device_type, name in _KEY_NAMES.items()}
