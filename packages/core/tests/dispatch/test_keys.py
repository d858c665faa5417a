"""Key sets and their descriptions."""

from __future__ import annotations

from mortice._dispatch import keys as K


def test_a_description_names_a_set() -> None:
    for keys in (0, K.CPU, K.CPU_VIEW | K.AUTOGRAD, K.FAKE | K.META, K.device_bit("described")):
        text = K.describe(keys)
        for _ in range(2):  # made, and known from then on
            assert K.describe(keys) == text
            assert K.described(text) == keys
    assert K.describe(K.CPU | K.AUTOGRAD) == "DispatchKeySet(Autograd, CPU)"
    assert K.described("DispatchKeySet(NEW)") == K.device_bit("new")
