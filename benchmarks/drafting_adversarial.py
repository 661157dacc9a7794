"""What drafting loses where no draft holds: answers drawn from noise, in pairs of runs with and without, each first in turn."""

from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any

from rich.console import Console

from benchmarks.drafting_groups import Group
from benchmarks.drafting_model import ADAPTIVE, OFF, Model, Outcome
from plait.types.chunks import Chunk
from plait.types.sampling import SamplingParams

TEMPERATURE = 3.0
GROUP_SIZE = 8


def noise_chunks(vocab_size: int, num_groups: int, new_tokens: int) -> list[Chunk]:
    """Groups of one random model: few tokens, so that the trees find much and are nearly always wrong."""
    groups = [
        Group(f"noise/{i}", "noise", "random", tuple((7 * i + k) % vocab_size for k in range(16)), 100 * i)
        for i in range(num_groups)
    ]
    return hot_chunks(groups, SamplingParams(new_tokens))


def hot_chunks(groups: Sequence[Group], sampling: SamplingParams) -> list[Chunk]:
    return [group.chunk(number, sampling) for group in groups for number in range(GROUP_SIZE)]


def pair_row(console: Console, model: Model, name: str, chunks: Sequence[Chunk], batch: int, num_pairs: int) -> dict[str, Any]:
    """The ratios of CPU seconds with drafting over without; the planner is new in every run."""
    pairs: list[tuple[Outcome, Outcome]] = []
    for number in range(num_pairs):
        order = (OFF, ADAPTIVE) if number % 2 == 0 else (ADAPTIVE, OFF)
        found = {system: model.run(system, chunks, batch) for system in order}
        pairs.append((found[OFF], found[ADAPTIVE]))
    return row_of(name, model.dtype, batch, pairs)


def row_of(name: str, dtype: str, batch: int, pairs: Sequence[tuple[Outcome, Outcome]]) -> dict[str, Any]:
    ratios = [drafting.timing.cpu_s / plain.timing.cpu_s for plain, drafting in pairs]
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    plain, drafting = pairs[-1]
    return {
        "part": "adversarial", "model": name, "dtype": dtype, "batch": batch, "pairs": len(pairs), "tokens": plain.num_tokens,
        "plain_cpu_s": median(plain.timing.cpu_s for plain, _ in pairs), "ratio": median(ratios), "ratio_quartiles": [low, high],
        "ratios": ratios, "proposed": drafting.proposed, "accepted": drafting.accepted,
        "same_outputs": all(plain.is_same_as(drafting) for plain, drafting in pairs),
    }  # fmt: skip
