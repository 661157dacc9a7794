"""This machine's cost profile, from what the benchmarks measured of it: a decode step by its rows, and training by its tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from benchmarks.seer_workload import PROMPT_TOKENS, SHAPES, make_workload

Row = Mapping[str, Any]
MARLAAS_ROWS, MARLAAS_MAX_ROWS = 16, 64
"""Of a lone task's step, and of the engine."""
MARLAAS_STEP_TOKENS = 2 * 32 + 16 * 58
"""That the trainer computes: the prompts of two groups, and answers, about."""
TWO_ENGINES = {"moonlight": ("tiny moonlight", 32), "qwen2-vl": ("tiny qwen2-vl", 16), "kimi-k2": ("tiny kimi-k2", 32)}
CHUNK_TOKENS, VOCABULARY, SEED = 32, 384, 7
"""Of the real benchmark."""


class MachineCosts(msgspec.Struct, frozen=True):
    """A step takes `step_s`, each row `row_s`, each token of a context `context_s`; a prompt's token `prompt_share` of a row."""

    step_s: float
    row_s: float
    train_token_s: float = 0.0
    prompt_share: float = 0.25
    context_s: float = 0.0
    chunk_s: float = 0.0
    """Of ending and resuming a chunk; spread over tokens by `divided`."""

    def divided(self, tokens_per_chunk: float) -> "MachineCosts":
        return msgspec.structs.replace(self, row_s=self.row_s + self.chunk_s / tokens_per_chunk)

    def prefill_s(self, num_tokens: int) -> float:
        return self.step_s + self.prompt_share * self.row_s * num_tokens if num_tokens else 0.0

    def decode_step_s(self, num_rows: int, context_tokens: int) -> float:
        return self.step_s + self.row_s * num_rows + self.context_s * context_tokens if num_rows else 0.0

    def verify_step_s(self, num_rows: int, context_tokens: int, tokens_per_row: float) -> float:
        return self.step_s + self.row_s * num_rows * tokens_per_row if num_rows else 0.0

    def fetch_s(self, num_tokens: int) -> float:
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


def seer_profile(rows: Sequence[Row]) -> MachineCosts:
    """Least squares over pinned groups with ample memory: there lengths alone say which rows and contexts each step has.

    One engine's whole run and its last tenth, and the fuller of two engines in three cases: no chunk ends there.
    """
    alone = engine_lengths("moonlight", 16, 1)[0]
    first = _row(rows, case="tiny, one engine", system="pinned groups", cache_share=2.0)
    tail_start = sorted(alone)[int(0.9 * len(alone)) - 1]
    amounts, seconds = [amounts_of(alone), amounts_of(alone, tail_start)], [first["completion_s"], first["last_tenth_s"]]
    for shape, (case, num_groups) in TWO_ENGINES.items():
        amounts.append(max((amounts_of(lengths) for lengths in engine_lengths(shape, num_groups, 2)), key=lambda found: found[1]))
        seconds.append(_row(rows, case=case, system="pinned groups", cache_share=2.0)["completion_s"])
    step_s, row_s, context_s = (float(x) for x in np.linalg.lstsq(np.array(amounts), np.array(seconds), rcond=None)[0])
    return MachineCosts(step_s, row_s, context_s=context_s)


def engine_lengths(shape: str, num_groups: int, num_engines: int) -> list[list[int]]:
    """Of the requests of each engine where groups are dealt out in turn."""
    workload = make_workload(next(one for one in SHAPES if one.name == shape), num_groups, VOCABULARY, SEED)
    numbers = {group: number for number, group in enumerate(dict.fromkeys(request.group for request in workload.requests))}
    found: list[list[int]] = [[] for _ in range(num_engines)]
    for request in workload.requests:
        found[numbers[request.group] % num_engines].append(request.length)
    return found


def amounts_of(lengths: Sequence[int], start: int = 0) -> list[float]:
    """(Steps, rows over all steps, contexts over all rows and steps) of answers that begin together, from step `start` on."""
    long = np.array([length for length in lengths if length > start], float)
    contexts = PROMPT_TOKENS * (long - start) + (long**2 - start**2) / 2
    return [float(long.max() - start), float((long - start).sum()), float(contexts.sum())]


def _row(rows: Sequence[Row], **wanted: Any) -> Row:
    return next(row for row in rows if all(row.get(key) == value for key, value in wanted.items()))
