"""How often drafted tokens are accepted, measured as they are verified, apart for the tail and the rest.

- A position is tried when all before it in its draft were accepted; so `rate(position)` is the beta_i of Seer (arXiv 2511.14617).
- Old trials are forgotten exponentially: one among the last `WINDOW` counts, roughly.
- A draft's own probabilities are counts, not the policy's; `calibrate` scales each conditional probability by accepted over
  predicted at its position. Before anything is measured a prior of `PRIOR_TRIALS` trials says the predictions are right.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

GAMMA_MAX = 8
"""Longest draft that is verified."""
WINDOW = 128
PRIOR_TRIALS = 4
PRIOR_RATE = 0.5


def conditionals(probabilities: Sequence[float]) -> tuple[float, ...]:
    """Turn the probabilities of a path's beginnings into those of each token given the ones before."""
    return tuple(here / before for here, before in zip(probabilities, (1.0, *probabilities), strict=False))


@dataclass(slots=True)
class _Position:
    tried: float = 0.0
    predicted: float = 0.0
    accepted: float = 0.0
    scale: float = 1.0
    """Accepted over predicted."""

    def observe(self, predicted: float, accepted: bool) -> None:
        keep = 1 - 1 / WINDOW
        self.tried = self.tried * keep + 1
        self.predicted = self.predicted * keep + predicted
        self.accepted = self.accepted * keep + accepted
        self.scale = (self.accepted + PRIOR_TRIALS * PRIOR_RATE) / (self.predicted + PRIOR_TRIALS * PRIOR_RATE)

    @property
    def rate(self) -> float:
        return (self.accepted + PRIOR_TRIALS * PRIOR_RATE) / (self.tried + PRIOR_TRIALS)


@dataclass(slots=True)
class Acceptance:
    """Measured acceptance of each draft position, counted from 0."""

    _positions: dict[bool, list[_Position]] = field(
        default_factory=lambda: {is_tail: [_Position() for _ in range(GAMMA_MAX)] for is_tail in (False, True)}
    )

    def observe(self, probabilities: Sequence[float], num_accepted: int, is_tail: bool = False) -> None:
        """Take a verified draft: its path probabilities as drafted, and how many of its tokens were accepted."""
        positions = self._positions[is_tail]
        for i, predicted in enumerate(conditionals(probabilities)[: min(num_accepted + 1, GAMMA_MAX)]):
            positions[i].observe(predicted, i < num_accepted)

    def rate(self, position: int, is_tail: bool = False) -> float:
        """Return beta at a position: the share accepted of those whose predecessors were."""
        return self._positions[is_tail][position].rate

    def calibrate(self, probabilities: Sequence[float], is_tail: bool = False) -> tuple[float, ...]:
        """Return the expected acceptance of a draft's beginnings, of at most `GAMMA_MAX` tokens; it never rises."""
        path, before, found = 1.0, 1.0, []
        for position, here in zip(self._positions[is_tail], probabilities, strict=False):
            path *= min(1.0, here / before * position.scale)
            before = here
            found.append(path)
        return tuple(found)
