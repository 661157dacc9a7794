"""Counter-based noise: a pure function of (seed, position), whatever else is in the batch.

The generator is the finaliser of SplitMix64 (Steele, Lea, Flood 2014) applied to a keyed counter.
"""

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser: every input bit moves every output bit."""
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


def counter_bits(seeds_R: NDArray[np.uint64], positions_R: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """64 random bits for each (seed, position)."""
    with np.errstate(over="ignore"):
        return mix(mix(seeds_R + _GOLDEN) + (positions_R + np.uint64(1)) * _GOLDEN)


def uniform(seeds_R: NDArray[np.uint64], positions_R: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Uniform in (0, 1), both ends excluded, for each (seed, position).

    52 bits: the middles of so many intervals are all exact in float64; with 53 the last would round to 1.
    """
    return ((counter_bits(seeds_R, positions_R) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def gumbel(seed: int, position: int, num_values: int) -> NDArray[np.float32]:
    """Standard Gumbel noise for each of `num_values` tokens at one (seed, position)."""
    key = counter_bits(np.array([seed], np.uint64), np.array([position], np.uint64))
    u = uniform(np.broadcast_to(key, (num_values,)), np.arange(num_values, dtype=np.uint64))
    return (-np.log(-np.log(u))).astype(np.float32)
