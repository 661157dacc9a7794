"""One model, one thread, and engines on it that draft or do not: off, a fixed number of tokens, or as the planner decides, of one
path a row or of several."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from msgspec.structs import replace as replaced

from benchmarks.common import Timing, timed
from plait.cluster.rollout_role import load_adapter
from plait.drafting.cost_model import DraftPlan
from plait.drafting.draft import DraftIncrement
from plait.drafting.draft_tree import MAX_PATHS, DraftTree
from plait.drafting.local_drafter import LocalDrafter
from plait.drafting.planner import DraftPlanner
from plait.engine.adapters import AdapterStore
from plait.engine.engine import Engine
from plait.engine.group_drafter import GroupDrafter
from plait.engine.sampler import Sampler
from plait.engine.speculation import Speculation
from plait.engine.step_times import measure_step_times, token_step_of
from plait.models.decoder import Decoder
from plait.models.invariance import self_test
from plait.models.weights import load_model
from plait.types.chunks import Chunk, ChunkResult

OFF, ONE_PATH, ADAPTIVE = "off", "one path", "adaptive"
NUM_ADAPTERS = 4
SLOT_MARGIN = 32

Known = Mapping[str, Sequence[tuple[int, ...]]]
"""Group -> answers of siblings that have ended."""


class FixedPlanner(DraftPlanner):
    """Verifies the first `num_tokens` of every draft, whatever that costs."""

    def __init__(self, profile: Mapping[tuple[int, int], float], num_tokens: int) -> None:
        super().__init__(profile)
        self.num_tokens = num_tokens

    def wants_drafts(self, num_rows: int, is_tail: bool = False, num_unlearnt: int = 0) -> bool:
        return num_rows > 0

    def plan(
        self, trees: Sequence[DraftTree], is_tail: Sequence[bool] = (), requests: Sequence[str] = (), refilled: float = 0.0
    ) -> DraftPlan:
        return DraftPlan(tuple(tuple(range(min(tree.num_first, self.num_tokens))) for tree in trees), 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One system's run: its time, what came out, and what drafting did."""

    timing: Timing
    results: dict[str, ChunkResult]
    proposed: int = 0
    accepted: int = 0
    tokens_per_row_step: float = 1.0
    verified: int = 0
    """How often a row had a draft to verify."""
    branched: int = 0
    """How often it had several paths."""
    beside: int = 0
    """Tokens accepted beside first paths."""

    @property
    def num_tokens(self) -> int:
        return sum(len(result.tokens) for result in self.results.values())

    def is_same_as(self, other: "Outcome") -> bool:
        """Tokens, log-probabilities to the bit, and why each ended."""
        return _drawn(self.results) == _drawn(other.results)


class Model:
    """Decodes chunks; loaded once for all systems."""

    def __init__(self, folder: Path, dtype: str, max_rows: int) -> None:
        self.dtype = dtype
        config, weights = load_model(folder, getattr(torch, dtype), "cpu")
        self.is_batch_invariant = self_test(config, weights).granted
        self.decoder = Decoder(config, weights, prepack=True)
        self.profile = measure_step_times(self.decoder, time.perf_counter, max_rows)

    def run(
        self,
        system: str,
        chunks: Sequence[Chunk],
        max_rows: int,
        known: Known | None = None,
        planners: Mapping[str, DraftPlanner] | None = None,
    ) -> Outcome:
        """Draw all chunks, as many at once as `max_rows`; prompts and what siblings have said are not part of the time.

        `planners` are those of adaptive systems, a new one if there is none.
        """
        drafter = self._drafter(system, planners or {})
        if drafter is not None:
            tell(drafter, chunks, known or {})
        speculation = Speculation(drafter, time.perf_counter) if drafter is not None else None
        engine = self._engine(chunks, max_rows, speculation)
        drain(engine, warm_up_of(chunks), {})
        before = counted(speculation)
        results: dict[str, ChunkResult] = {}
        timing = timed(lambda: drain(engine, chunks, results))
        drawn, rows, *counts = (now - then for now, then in zip(counted(speculation), before, strict=True))
        proposed, accepted, verified, branched, beside = counts
        return Outcome(timing, results, proposed, accepted, drawn / rows if rows else 1.0, verified, branched, beside)

    def _drafter(self, system: str, planners: Mapping[str, DraftPlanner]) -> GroupDrafter | None:
        if system == OFF:
            return None
        planner = planners.get(system) or (
            self.new_planner(system) if system in (ONE_PATH, ADAPTIVE) else FixedPlanner(self.profile, int(system))
        )
        return GroupDrafter(LocalDrafter(), planner)

    def new_planner(self, system: str) -> DraftPlanner:
        """Of an adaptive system."""
        max_paths = MAX_PATHS if system == ADAPTIVE else 1
        return DraftPlanner(self.profile, max_paths=max_paths, token_step=token_step_of(self.decoder))

    def _engine(self, chunks: Sequence[Chunk], max_rows: int, speculation: Speculation | None) -> Engine:
        longest = max(len(chunk.context_tokens) + chunk.budget_tokens for chunk in chunks)
        prompts = sum(len(prompt) for prompt in {chunk.context_tokens for chunk in chunks})
        return Engine(
            self.decoder, AdapterStore(lambda ref: load_adapter(ref, self.decoder), NUM_ADAPTERS), "benchmark", max_rows=max_rows,
            slot_tokens=max_rows * (longest + SLOT_MARGIN), pool_tokens=2 * prompts + longest, max_context_tokens=longest,
            sampler=Sampler(use_gumbel=not self.is_batch_invariant), speculation=speculation,
        )  # fmt: skip


def counted(told: Speculation | None) -> tuple[int, ...]:
    """Tokens drawn, the rows of all steps, draft tokens proposed and accepted, rows with drafts, with several paths, and tokens
    accepted beside first paths."""
    if told is None:
        return (0,) * 7
    drafted = (told.num_proposed, told.num_accepted, told.num_verified_rows)
    return (told.num_drawn, told.num_rows, *drafted, told.num_branched_rows, told.num_branch_tokens)


def warm_up_of(chunks: Sequence[Chunk]) -> list[Chunk]:
    """One token after each prompt: the prompts are in the pool then, and adapters in memory."""
    firsts = {(chunk.policy, chunk.context_tokens): chunk for chunk in reversed(chunks)}.values()
    return [
        replaced(chunk, request_id=f"warm-up-{i}", budget_tokens=1, keep_cache=True, group="") for i, chunk in enumerate(firsts)
    ]


def tell(drafter: GroupDrafter, chunks: Sequence[Chunk], known: Known) -> None:
    """The answers of siblings that have ended."""
    prompts = {chunk.group: chunk.context_tokens for chunk in chunks if chunk.group}
    for group, answers in known.items():
        drafter.follow(group, prompts[group])
        drafter.take_in(DraftIncrement(group, f"{group}/ended-{i}", 0, answer) for i, answer in enumerate(answers))


def drain(engine: Engine, chunks: Sequence[Chunk], results: dict[str, ChunkResult]) -> None:
    for chunk in chunks:
        engine.submit(chunk)
    while not engine.is_idle:
        results |= {result.request_id: result for result in engine.step()}
    failed = next((result.error for result in results.values() if result.error), "")
    if failed:
        raise RuntimeError(failed)


def _drawn(results: Mapping[str, ChunkResult]) -> dict[str, tuple[object, ...]]:
    return {name: (result.tokens, result.logprobs, result.stop) for name, result in results.items()}
