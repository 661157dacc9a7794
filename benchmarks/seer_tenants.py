"""Four tasks' rollouts at once: what each tenant waits, with fairness between tenants and without, against running alone."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Console

from benchmarks.seer_run import EngineProcess, Outcome, Rollout
from benchmarks.seer_systems import SYSTEMS
from benchmarks.seer_workload import SHAPES, Request, Workload, make_workload

if TYPE_CHECKING:
    from benchmarks.seer_cases import Case

SHARES = {"tail": 4, "large": 2, "small": 1, "tiny": 0.5}
"""Tenants and the size of their batches, in the case's groups. The first has long answers."""
VOCAB_SIZE = 300
"""At most that of the tiny model."""
CONTEXT = next(system for system in SYSTEMS if system.name == "+ context")


def rows_of_tenants(case: "Case", engines: Sequence[EngineProcess], console: Console) -> list[dict[str, Any]]:
    batches = {name: _batch(index, name, case) for index, name in enumerate(SHARES)}
    alone = {name: _run([batch], True, case, engines) for name, batch in batches.items()}
    rows = []
    for fair in (False, True):
        together = _run(list(batches.values()), fair, case, engines)
        console.log(f"{case.name}, fairness {'on' if fair else 'off'}: {together.wall_s:.1f} s")
        rows += [_row(fair, name, batches[name], alone[name], together) for name in batches]
    return rows


def _batch(index: int, name: str, case: "Case") -> Workload:
    """Groups are numbered apart, so that seeds and names differ."""
    shape = SHAPES[2] if name == "tail" else SHAPES[0]
    made = make_workload(shape, max(1, int(SHARES[name] * case.num_groups / 2)), VOCAB_SIZE, seed=index)
    return Workload(shape, tuple(replace(r, group=f"g{1000 * index + int(r.group[1:])}", tenant=name) for r in made.requests))


def _run(batches: Sequence[Workload], fair: bool, case: "Case", engines: Sequence[EngineProcess]) -> Outcome:
    from benchmarks.seer_cases import engine_size, rollout_of

    requests: tuple[Request, ...] = tuple(request for batch in batches for request in batch.requests)
    workload = Workload(SHAPES[0], requests if fair else tuple(replace(r, tenant="all") for r in requests))
    size = engine_size(workload, case.cache_shares[0], len(engines))
    rollout: Rollout = rollout_of(CONTEXT, workload, engines, size, is_forced=True)
    return rollout.run()


def _row(fair: bool, name: str, batch: Workload, alone: Outcome, together: Outcome) -> dict[str, Any]:
    together_s = max(together.end_of[request.request_id] for request in batch.requests)
    return {
        "fair": fair, "tenant": name, "requests": len(batch.requests), "alone_s": alone.wall_s, "together_s": together_s,
        "slowdown": together_s / alone.wall_s, "tokens_per_s": together.num_tokens / together.wall_s,
    }  # fmt: skip
