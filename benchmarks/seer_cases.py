"""What is run: models, workloads, sizes of cache; and the row of figures that each system gets."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from benchmarks.seer_preempting import Size
from benchmarks.seer_run import EngineProcess, Outcome, Rollout
from benchmarks.seer_systems import SYSTEMS, System
from benchmarks.seer_workload import SHAPES, Workload, free_workload, make_workload
from plait.models.catalogue import find
from plait.models.tiny import make_tiny_model
from plait.models.tokenizer import Tokenizer

CHUNK_TOKENS = 32
"""An eighth of the longest request, as in the paper."""
SEGMENT_BYTES = 3 << 29
"""Of shared memory for each engine: what requests between chunks hold fits."""
MAX_ROWS = 256
SEED = 7
TINY_SHAPE: dict[str, Any] = {
    "hidden_size": 256, "intermediate_size": 688, "num_layers": 4, "num_heads": 4, "num_kv_heads": 2, "head_dim": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    dtype: str = "float32"

    def folder(self, scratch: Path) -> Path:
        if self.name != "tiny":
            return find(self.name)
        folder = scratch / "tiny"
        return folder if folder.exists() else make_tiny_model(folder, **TINY_SHAPE)


@dataclass(frozen=True, slots=True)
class Case:
    """`cache_shares` of the peak need of `num_groups` groups. `shape` None: requests end as they like."""

    name: str
    model: Model
    shape: str | None
    num_groups: int
    cache_shares: tuple[float, ...]
    num_engines: int = 2
    num_rounds: int = 3
    is_of_tenants: bool = False

    @property
    def engines_key(self) -> str:
        return f"{self.model.name}, {self.num_engines} engines"

    def workload(self, folder: Path, factor: int = 1) -> Workload:
        tokenizer = Tokenizer.load(folder)
        if self.shape is None:
            return free_workload(tokenizer, factor * self.num_groups)
        shape = next(shape for shape in SHAPES if shape.name == self.shape)
        return make_workload(shape, factor * self.num_groups, tokenizer.vocab_size, SEED)

    def rows(self, engines: Sequence[EngineProcess], folder: Path, console: Console) -> list[dict[str, Any]]:
        """For each size of cache, one row a system."""
        return [row for share in self.cache_shares for row in self._rows_at(share, engines, folder, console)]

    def _rows_at(self, share: float, engines: Sequence[EngineProcess], folder: Path, console: Console) -> list[dict[str, Any]]:
        workload = self.workload(folder)
        size = engine_size(workload, share, len(engines))
        systems = [system for system in SYSTEMS if self.shape is not None or not system.knows_lengths]
        outcomes: dict[str, list[Outcome]] = {system.name: [] for system in systems}
        for number in range(self.num_rounds):
            for system in systems:
                outcome = self._run(system, engines, size, folder)
                outcomes[system.name].append(outcome)
                console.log(f"{self.name}, cache {share:.0%}, round {number}, {system.name}: {outcome.wall_s:.1f} s")
        wanted = outcomes[systems[0].name][0].digests
        facts = {"case": self.name, "model": self.model.name, "engines": len(engines), "cache_share": share}
        return [facts | row_of(system, outcomes[system.name], wanted) for system in systems]

    def _run(self, system: System, engines: Sequence[EngineProcess], size: Size, folder: Path) -> Outcome:
        workload = self.workload(folder, system.over_issue)
        return rollout_of(system, workload, engines, size, self.shape is not None, folder).run()


def rollout_of(
    system: System, workload: Workload, engines: Sequence[EngineProcess], size: Size, is_forced: bool, folder: Path | None = None
) -> Rollout:
    stops = () if is_forced or folder is None else Tokenizer.load(folder).stop_token_ids
    return Rollout(system, workload, engines, size, CHUNK_TOKENS, SEGMENT_BYTES, stop_token_ids=stops, is_forced=is_forced)


def engine_size(workload: Workload, share: float, num_engines: int) -> Size:
    """At least what the longest request needs."""
    longest = workload.longest_tokens
    cache_tokens = max(int(share * workload.peak_tokens / num_engines), longest)
    prompts = len({request.group for request in workload.requests}) * (len(workload.requests[0].prompt) + 16)
    return Size(cache_tokens, max(prompts, 2048), longest + 16, MAX_ROWS)


def row_of(system: System, outcomes: Sequence[Outcome], wanted: dict[str, str]) -> dict[str, Any]:
    """`wanted` are the digests of what the first system drew."""

    def total(outcome: Outcome, name: str) -> float:
        return sum(engine[name] for engine in outcome.engines)

    last = outcomes[-1]
    return {
        "system": system.name,
        "tokens_per_s": median(outcome.num_tokens / outcome.wall_s for outcome in outcomes),
        "completion_s": median(outcome.wall_s for outcome in outcomes),
        "last_tenth_s": median(outcome.last_tenth_s for outcome in outcomes),
        "idle_share": median(outcome.idle_share for outcome in outcomes),
        "cpu_s": median(total(outcome, "cpu_s") for outcome in outcomes),
        "preemptions": median(total(outcome, "preemptions") for outcome in outcomes),
        "prefilled_tokens": median(total(outcome, "prefilled_tokens") for outcome in outcomes),
        "moves": median(outcome.num_moves for outcome in outcomes),
        "proposed": total(last, "proposed"),
        "accepted": total(last, "accepted"),
        "tokens_per_row_step": 1 + total(last, "accepted") / max(1, total(last, "row_steps")),
        "same_outputs": system.over_issue > 1 or all(outcome.digests == wanted for outcome in outcomes),
        "rounds": len(outcomes),
    }


def tenant_rows(case: Case, engines: Sequence[EngineProcess], console: Console) -> list[dict[str, Any]]:
    from benchmarks.seer_tenants import rows_of_tenants

    return rows_of_tenants(case, engines, console)


TINY, SMOLLM2 = Model("tiny"), Model("smollm2-135m-instruct")
SHARES = (0.15, 0.3, 0.6, 2.0)
FULL = [
    *(Case(f"tiny {shape.name}", TINY, shape.name, 256 // shape.group_size, SHARES, num_rounds=2) for shape in SHAPES),
    Case("tiny, one engine", TINY, "moonlight", 16, (0.3, 2.0), num_engines=1, num_rounds=2),
    Case("SmolLM2 moonlight", SMOLLM2, "moonlight", 6, (0.3, 2.0), num_rounds=1),
    Case("SmolLM2 free", SMOLLM2, None, 6, (0.3,), num_rounds=1),
    Case("tiny, four tenants", TINY, "moonlight", 8, (0.3,), is_of_tenants=True),
]
QUICK = [
    replace(FULL[0], num_groups=16, cache_shares=(0.3, 2.0), num_rounds=1),
    Case("tiny, four tenants", TINY, "moonlight", 4, (0.3,), is_of_tenants=True),
]
