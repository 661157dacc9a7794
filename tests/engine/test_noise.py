"""Counter-based noise: the same wherever it is asked for, and as uniform as its bits allow."""

import math

import numpy as np
import pytest

from plait.engine import noise


def test_depends_on_seed_and_position_alone() -> None:
    seeds, positions = np.array([3, 3, 4], np.uint64), np.array([0, 1, 0], np.uint64)
    together = noise.uniform(seeds, positions)
    alone = [noise.uniform(seeds[i : i + 1], positions[i : i + 1])[0] for i in range(3)]
    assert list(together) == alone
    assert len(set(together)) == 3


def test_known_values() -> None:
    """Noise is part of a run's identity: a change of the generator is a change of every seeded result."""
    found = noise.uniform(np.array([0, 2**63 - 1], np.uint64), np.array([0, 1000], np.uint64))
    assert found.tolist() == [0.6524484863740322, 0.260144116597694]


@pytest.mark.parametrize("bits", [0, 2**64 - 1])
def test_ends_are_never_reached(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "counter_bits", lambda seeds, positions: np.full(len(seeds), bits, np.uint64))
    u = noise.uniform(np.array([1], np.uint64), np.array([1], np.uint64))[0]
    assert 0 < u < 1
    assert math.isfinite(-math.log(-math.log(u)))


@pytest.mark.parametrize("along", ["seeds", "positions"])
def test_uniform_along_seeds_and_positions(along: str) -> None:
    counter, fixed = np.arange(100_000, dtype=np.uint64), np.full(100_000, 7, np.uint64)
    u = noise.uniform(counter, fixed) if along == "seeds" else noise.uniform(fixed, counter)
    counts, _ = np.histogram(u, bins=100, range=(0, 1))
    chi_square = float(((counts - 1000) ** 2 / 1000).sum())
    assert abs(chi_square - 99) < 5 * math.sqrt(2 * 99)
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.02


def test_gumbel_noise() -> None:
    values = noise.gumbel(11, 5, 200_000)
    assert values.dtype == np.float32
    assert abs(values.mean() - 0.5772) < 0.02
    assert abs(values.var() - math.pi**2 / 6) < 0.03
    assert not np.array_equal(values, noise.gumbel(11, 6, 200_000))
    assert np.array_equal(values[:100], noise.gumbel(11, 5, 100)), "a token's noise does not depend on the vocabulary's size"
