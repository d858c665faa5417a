"""A small share of the fuzzing, in every test run; ``python3 dev.py fuzz`` runs the rest.

MORTICE_FUZZ_EXAMPLES says how many examples each test takes.
"""

from __future__ import annotations

import os
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import FIXTURES, change_bytes, change_opcodes, invent, legacy, mutate, seeds
from outcome import outcome

SEEDS = seeds()
small = settings(
    max_examples=int(os.environ.get("MORTICE_FUZZ_EXAMPLES", "150")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)


@small
@given(st.sampled_from(sorted(SEEDS)), st.integers(0, 2**32))
def test_altered_files(name: str, seed: int) -> None:
    outcome(mutate(SEEDS[name], random.Random(seed)))


@small
@given(st.sampled_from(sorted(SEEDS)), st.integers(0, 2**32))
def test_altered_files_without_their_data(name: str, seed: int) -> None:
    outcome(mutate(SEEDS[name], random.Random(seed)), map_location="meta", verify=False)


@small
@given(st.integers(0, 2**32))
def test_invented_files(seed: int) -> None:
    outcome(invent(random.Random(seed)))
    outcome(legacy(random.Random(seed)))


@small
@given(st.binary(max_size=400), st.integers(0, 2**32))
def test_any_bytes(data: bytes, seed: int) -> None:
    rng = random.Random(seed)
    outcome(data)
    outcome(b"PK\x03\x04" + data)
    outcome(change_bytes(SEEDS["g28_legacy.pt"], rng))


@small
@given(st.integers(0, 2**32))
def test_altered_opcodes_of_every_kind(seed: int) -> None:
    rng = random.Random(seed)
    name = rng.choice(("g20_python_types.pt", "g22_sparse_csr.pt", "g17_tensor_attrs.pt"))
    data = SEEDS[name]
    assert isinstance(change_opcodes(data, rng), bytes)
    outcome(mutate(data, rng))


def test_every_prefix_of_a_file() -> None:
    data = (FIXTURES / "g14_state_dict.pt").read_bytes()
    assert outcome(data) == "loaded"
    for length in range(0, len(data), 7):
        assert outcome(data[:length]) == "refused"


def test_every_flipped_bit_of_a_file() -> None:
    data = (FIXTURES / "g01_f32_2x3.pt").read_bytes()
    rng = random.Random(0)
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << rng.randrange(8)
        outcome(bytes(flipped))
