"""What a pass measures.

- `loss`, `num_tokens` (counted positions): sums. `clip_fraction`, `kl_to_base`: means over counted positions.
- `ratio_mean`, `logprob_gap_max`: the trainer's against the sampler's log-probabilities over sampled tokens, before the
  update; a batch drawn by the very weights that train on it has 1 and 0 up to rounding, and exactly with batch invariance.
- What was not measured is absent.
"""

import math

import numpy as np
from torch import Tensor

from plait.training.datums import sampled_positions
from plait.types.datum import Datum

MEANS = {"num_clipped": "clip_fraction", "kl_to_base": "kl_to_base"}
"""Sums over counted positions that are reported as means, and under which name."""


class PassMetrics:
    """Adds up over micro-batches."""

    def __init__(self) -> None:
        self._sums: dict[str, list[float]] = {}
        self._ratios: list[float] = []
        self._gaps: list[float] = []

    def add(self, sums: dict[str, Tensor]) -> None:
        """Take over one sequence's sums."""
        for name, value in sums.items():
            self._sums.setdefault(name, []).append(float(value))

    def compare(self, datum: Datum, logprobs_T: np.ndarray) -> None:
        """Compare the trainer's log-probabilities with the datum's own, if it has any."""
        positions = sampled_positions(datum) if datum.logprobs else []
        gaps = [float(logprobs_T[t]) - datum.logprobs[t] for t in positions]
        self._ratios += [math.exp(gap) for gap in gaps]
        self._gaps += [abs(gap) for gap in gaps]

    def merge(self, other: "PassMetrics") -> None:
        """Take over what another rank measured on other datums."""
        for name, values in other._sums.items():
            self._sums.setdefault(name, []).extend(values)
        self._ratios += other._ratios
        self._gaps += other._gaps

    @property
    def loss(self) -> float:
        return math.fsum(self._sums.get("loss", []))

    def summary(self, with_loss: bool) -> dict[str, float]:
        sums = {name: math.fsum(values) for name, values in self._sums.items()}
        num_tokens = sums.get("num_tokens", 0.0)
        summary = {"loss": self.loss, "num_tokens": num_tokens} if with_loss else {}
        if num_tokens:
            summary |= {mean: sums[name] / num_tokens for name, mean in MEANS.items() if name in sums}
        if self._ratios:
            summary |= {"ratio_mean": math.fsum(self._ratios) / len(self._ratios), "logprob_gap_max": max(self._gaps)}
        return summary
