"""Sets of dispatch keys, as kernels registered ``with_keyset`` are given them."""

from __future__ import annotations

from mortice._dispatch import keys as K


class DispatchKeySet:
    """The keys of a call, given to kernels that were registered ``with_keyset``."""

    __slots__ = ("keys",)

    def __init__(self, keys: int) -> None:
        self.keys = keys

    def has(self, key: str) -> bool:
        functionality, device = K.parse_key(key)
        bit = K.BITS.get(functionality, 0) | (K.device_bit(device) if device else 0)
        return bool(bit) and self.keys & bit == bit

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        keys = self.keys & other.keys
        for one in (self.keys, other.keys):
            if one & K.BELOW_AUTOGRAD and not one & K.AUTOGRAD:
                keys |= K.BELOW_AUTOGRAD  # left out on purpose: a kernel for Autograd runs no more
        return DispatchKeySet(keys)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self.keys | other.keys)

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self.keys & ~other.keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self.keys == other.keys

    def __hash__(self) -> int:
        return hash(self.keys)

    def __repr__(self) -> str:
        return K.describe(self.keys)


#: Every key that comes after autograd; ``op.redispatch(keys & after_autograd_keyset, ...)``.
after_autograd_keyset = DispatchKeySet(
    ~(K.AUTOGRAD | (K.AUTOGRAD - 1 ^ -1)) | ~K.FUNCTIONALITY_MASK
)
