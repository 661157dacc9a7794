"""What the rollout engines did, and how long the last generations of a step took, as rows of text."""

from collections.abc import Sequence
from statistics import fmean

import msgspec

from plait.observe.engine_counters import pulls_text
from plait.observe.report.history import RunHistory
from plait.observe.snapshot import EngineSnapshot
from plait.observe.text import percent


class EngineRow(msgspec.Struct, frozen=True):
    engine: str
    idle: str
    reserved: str
    moves: str
    hits: str
    acceptance: str
    draft_length: str


class TailRow(msgspec.Struct, frozen=True):
    task: str
    mean: str
    longest: str
    share: str
    """Of the steps' rollout time."""


def engine_rows(engines: Sequence[EngineSnapshot]) -> list[EngineRow]:
    return [
        EngineRow(
            engine.engine,
            percent(engine.idle_share),
            percent(engine.reserved_share_mean),
            f"{engine.num_moves:,}",
            hits_text(engine),
            percent(engine.acceptance),
            "-" if engine.draft_length is None else f"{engine.draft_length:.1f}",
        )
        for engine in engines
    ]


def hits_text(engine: EngineSnapshot) -> str:
    """Share of the context tokens that no prompt pass computed, with the tiers where there are several, and what was pulled."""
    tiers = ", ".join(f"{tier} {percent(share)}" for tier, share in engine.hit_shares.items())
    text = percent(engine.hit_share) + (f" ({tiers})" if len(engine.hit_shares) > 1 else "")
    return ", ".join(filter(None, (text, pulls_text(engine.counters))))


def tail_rows(history: RunHistory) -> list[TailRow]:
    """One for each task whose steps were rolled out."""
    rows = []
    for name, task in history.tasks.items():
        steps = [step for step in task.ordered_steps if step.tail_s is not None]
        tails_s = [step.tail_s for step in steps if step.tail_s is not None]
        if tails_s:
            rollout_s = sum(step.rollout_s or 0.0 for step in steps)
            share = percent(sum(tails_s) / rollout_s) if rollout_s else "-"
            rows.append(TailRow(name, f"{fmean(tails_s):.2f} s", f"{max(tails_s):.2f} s", share))
    return rows
