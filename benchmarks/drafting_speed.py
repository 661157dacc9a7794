"""Tokens a second as a group runs empty: at batch b its b longest answers run and the others, which have ended, are known.

One engine, one thread; prompts are in the cache, as siblings had them. From batch 16 on nothing is known at the start. Systems take
turns, their order turned round every other time, and the fastest run of each counts; after the first round only "off" and the
adaptive systems run. An adaptive planner lives on from run to run, as an engine's does; trees are new.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.drafting_groups import Group
from benchmarks.drafting_model import ADAPTIVE, OFF, ONE_PATH, Model, Outcome
from plait.drafting.planner import DraftPlanner
from plait.types.chunks import Chunk
from plait.types.sampling import SamplingParams

SYSTEMS = (OFF, "3", "7", ONE_PATH, ADAPTIVE)
ESSENTIAL = (OFF, ONE_PATH, ADAPTIVE)
BATCH_TOKENS = {1: 96, 2: 128, 4: 192, 8: 320, 16: 512, 32: 1024}
"""What is drawn at each batch, at least, if there are so many groups."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The requests of one batch size."""

    batch: int
    chunks: tuple[Chunk, ...]
    known: dict[str, tuple[tuple[int, ...], ...]]


def tail_of(groups: Sequence[Group], batch: int, num_tokens: int, sampling: SamplingParams) -> Tail:
    """The longest answers of group after group, until there are `num_tokens`."""
    chunks: list[Chunk] = []
    known, drawn = {}, 0
    for group in groups:
        order = sorted(range(len(group.answers)), key=lambda number: (-len(group.answers[number]), number))
        running, ended = order[:batch], order[batch:]
        chunks += [group.chunk(number, sampling) for number in running]
        known[group.name] = tuple(group.answers[number] for number in ended)
        drawn += sum(len(group.answers[number]) for number in running)
        if drawn >= num_tokens and len(chunks) >= batch:
            break
    return Tail(batch, tuple(chunks), known)


def speed_rows(
    model: Model,
    tail: Tail,
    facts: dict[str, Any],
    planners: Mapping[str, DraftPlanner],
    num_rounds: int,
    systems: Sequence[str] = SYSTEMS,
) -> list[dict[str, Any]]:
    """One row a system; `planners` are those of the adaptive ones."""
    works = {name: partial(model.run, name, tail.chunks, tail.batch, tail.known, planners=planners) for name in systems}
    outcomes: dict[str, list[Outcome]] = {name: [] for name in systems}
    for number in range(num_rounds):
        turn = [name for name in systems if number == 0 or name in ESSENTIAL]
        for name in turn if number % 2 == 0 else reversed(turn):
            outcomes[name].append(works[name]())
    facts = {"part": "speed", "dtype": model.dtype, "batch": tail.batch} | facts
    return [facts | _row(name, outcomes[name], outcomes[OFF]) for name in systems]


def _row(name: str, outcomes: Sequence[Outcome], plain: Sequence[Outcome]) -> dict[str, Any]:
    """`gain` is of CPU seconds, which on one thread are the wall's but for what else the machine does."""
    cpu_s = min(outcome.timing.cpu_s for outcome in outcomes)
    last = outcomes[-1]
    return {
        "system": name,
        "tokens": last.num_tokens,
        "tokens_per_s": last.num_tokens / min(outcome.timing.wall_s for outcome in outcomes),
        "cpu_s": cpu_s,
        "gain": min(outcome.timing.cpu_s for outcome in plain) / cpu_s,
        "tokens_per_row_step": last.tokens_per_row_step,
        "proposed": last.proposed,
        "accepted": last.accepted,
        "tokens_per_verify_step": 1 + last.accepted / last.verified if last.verified else 1.0,
        "branched": last.branched / last.verified if last.verified else 0.0,
        "accepted_beside": last.beside,
        "same_outputs": all(outcome.is_same_as(plain[0]) for outcome in outcomes),
        "rounds": len(outcomes),
    }
