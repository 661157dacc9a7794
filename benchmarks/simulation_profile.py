"""This machine's cost profile, from what the benchmarks measured of it: a decode step by its rows, and training by its tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Row = Mapping[str, Any]
MARLAAS_ROWS, MARLAAS_MAX_ROWS = 16, 64
"""Of a lone task's step, and of the engine."""
MARLAAS_STEP_TOKENS = 2 * 32 + 16 * 58
"""That the trainer computes: the prompts of two groups, and answers, about."""


class MachineCosts(msgspec.Struct, frozen=True):
    """A step takes `step_s`, each row `row_s`; a prompt's token `prompt_share` of a row."""

    step_s: float
    row_s: float
    train_token_s: float = 0.0
    prompt_share: float = 0.25

    @property
    def pads_contexts(self) -> bool:
        return False

    def prefill_s(self, num_tokens: int) -> float:
        return self.step_s + self.prompt_share * self.row_s * num_tokens if num_tokens else 0.0

    def decode_step_s(self, num_rows: int, context_tokens: int) -> float:
        return self.step_s + self.row_s * num_rows if num_rows else 0.0

    def verify_step_s(self, num_rows: int, context_tokens: int, tokens_per_row: float) -> float:
        return self.step_s + self.row_s * num_rows * tokens_per_row if num_rows else 0.0

    def fetch_s(self, num_tokens: int) -> float:
        return 0.0

    def resume_s(self, num_tokens: int) -> float:
        return 0.0

    def train_s(self, num_tokens: int) -> float:
        return self.train_token_s * num_tokens

    def optimizer_s(self) -> float:
        return 0.0

    def publish_s(self) -> float:
        return 0.0

    def load_s(self, num_bytes: float, tier: str) -> float:
        return 0.0

    def offload_s(self, num_bytes: float, tier: str) -> float:
        return 0.0


def marlaas_profile(rows: Sequence[Row]) -> MachineCosts:
    """Two points: a lone task's step of 16 rows, and the full engine that 32 tasks keep."""
    alone, full = (_row(rows, tasks=tasks, system="plait") for tasks in (1, 32))
    longest_tokens = 64
    small_s = alone["rollout_s"] / (alone["steps"] * longest_tokens)
    large_s = full["rollout_s"] / (full["sampled_tokens"] / MARLAAS_MAX_ROWS)
    row_s = (large_s - small_s) / (MARLAAS_MAX_ROWS - MARLAAS_ROWS)
    train_token_s = full["training_s"] / (full["steps"] * MARLAAS_STEP_TOKENS)
    return MachineCosts(small_s - MARLAAS_ROWS * row_s, row_s, train_token_s)


def _row(rows: Sequence[Row], **wanted: Any) -> Row:
    return next(row for row in rows if all(row.get(key) == value for key, value in wanted.items()))
