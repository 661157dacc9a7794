"""Costs of a machine that was measured."""

from functools import cache
from pathlib import Path

from plait.simulation.profile import Fit, Point, Profile, decode_terms, read_profile, token_terms
from plait.types.errors import ConfigError


class MeasuredCosts:
    """A `CostModel` that fits a profile. ConfigError if one of its parts was not measured."""

    def __init__(self, profile: Profile) -> None:
        for name, points in (("decode", profile.decode), ("prefill", profile.prefill), ("train", profile.train)):
            if not points:
                raise ConfigError(f"the profile of {profile.model} has no points of {name}.", "Measure it with `plait profile`.")
        self.profile = profile
        self.pads_contexts = True
        """As Plait's own engine does, with which it was measured."""
        self._decode, self._prefill = Fit(profile.decode, decode_terms), Fit(profile.prefill, token_terms)
        self._train = Fit(profile.train, token_terms)
        self._resume = Fit(profile.resume, token_terms) if profile.resume else None

    def prefill_s(self, num_tokens: int) -> float:
        return self._prefill.seconds(Point(num_tokens, 0.0)) if num_tokens else 0.0

    def decode_step_s(self, num_rows: int, context_tokens: int) -> float:
        return self._decode.seconds(Point(context_tokens, 0.0, num_rows)) if num_rows else 0.0

    def verify_step_s(self, num_rows: int, context_tokens: int, tokens_per_row: float) -> float:
        extra_s = self.profile.verify_token_s * num_rows * (tokens_per_row - 1)
        return self.decode_step_s(num_rows, context_tokens) + extra_s if num_rows else 0.0

    def train_s(self, num_tokens: int) -> float:
        return self._train.seconds(Point(num_tokens, 0.0)) if num_tokens else 0.0

    def optimizer_s(self) -> float:
        return self.profile.optimizer_s

    def publish_s(self) -> float:
        return self.profile.publish_s

    def load_s(self, num_bytes: float, tier: str) -> float:
        return num_bytes / self.profile.load_bytes_per_s

    def offload_s(self, num_bytes: float, tier: str) -> float:
        return self.load_s(num_bytes, tier)

    def fetch_s(self, num_tokens: int) -> float:
        return num_tokens / self.profile.fetch_tokens_per_s

    def resume_s(self, num_tokens: int) -> float:
        return self._resume.seconds(Point(num_tokens, 0.0)) if self._resume is not None else 0.0


def profile_costs(path: str) -> MeasuredCosts:
    """Of a file as it is now; ConfigError if it is no profile, or not a whole one."""
    return _fitted(read_profile(Path(path)))


@cache
def _fitted(profile: Profile) -> MeasuredCosts:
    return MeasuredCosts(profile)
