"""Lengths of answers: lognormal, correlated within a group, truncated. A pure function of the seed and of who asks.

The workloads of Seer (arXiv 2511.14617) have long tails, and siblings of one prompt are alike: most of the variance is between
prompts. `correlation` is that share (the intraclass correlation of the logarithms).
"""

import math
import random
from functools import lru_cache

import msgspec


@lru_cache(1 << 12)
def _common(name: str) -> float:
    """A group's: its siblings ask one after another."""
    return random.Random(name).gauss(0.0, 1.0)


class Lengths(msgspec.Struct, frozen=True):
    median_tokens: float
    sigma: float
    """Standard deviation of the natural logarithm."""
    correlation: float
    max_tokens: int
    min_tokens: int = 1

    def draw(self, seed: str, group: str, sample: int) -> int:
        """Of sample `sample` of a group; those of one group share their common part."""
        common = _common(f"{seed}/{group}")
        own = random.Random(f"{seed}/{group}/{sample}").gauss(0.0, 1.0)
        spread = self.sigma * (math.sqrt(self.correlation) * common + math.sqrt(1 - self.correlation) * own)
        return max(self.min_tokens, min(self.max_tokens, round(self.median_tokens * math.exp(spread))))
