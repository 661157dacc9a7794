"""What drafting loses where no draft holds: pairs of runs with and without, each first in turn.

- Noise: a tiny random model, whose few tokens let the trees find much that means nothing.
- Lies: before they begin, the drafter is told siblings of SmolLM2's answers that say something else after any two tokens that come
  in them. So there is a sure draft at every step, and its first token is wrong.
"""

from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any

from rich.console import Console

from benchmarks.drafting_groups import Group
from benchmarks.drafting_model import ADAPTIVE, OFF, Known, Model, Outcome
from plait.types.chunks import Chunk
from plait.types.sampling import SamplingParams

GROUP_SIZE = 8

Row = dict[str, Any]


def noise_chunks(vocab_size: int, num_groups: int, new_tokens: int) -> list[Chunk]:
    """Groups of a random model."""
    groups = [
        Group(f"noise/{i}", "noise", "random", tuple((7 * i + k) % vocab_size for k in range(16)), 100 * i)
        for i in range(num_groups)
    ]
    return chunks_of(groups, SamplingParams(new_tokens))


def lies_of(answers: Sequence[tuple[int, ...]], vocab_size: int) -> tuple[tuple[int, ...], ...]:
    """For each answer: every two of its tokens, each time with one after them that does not follow. Pure."""
    return tuple(
        tuple(t for first, second, third in zip(a, a[1:], a[2:], strict=False) for t in (first, second, (third + 1) % vocab_size))
        for a in answers
    )


def chunks_of(groups: Sequence[Group], sampling: SamplingParams) -> list[Chunk]:
    return [group.chunk(number, sampling) for group in groups for number in range(GROUP_SIZE)]


def lies_row(console: Console, model: Model, groups: Sequence[Group], sampling: SamplingParams, num_pairs: int) -> Row:
    """SmolLM2's answers, all rows of all groups at once."""
    chunks = chunks_of(groups, sampling)
    results = model.run(OFF, chunks, len(chunks)).results
    known = {
        group.name: lies_of(
            [results[f"{group.name}/{number}"].tokens for number in range(GROUP_SIZE)], model.decoder.config.vocab_size
        )
        for group in groups
    }
    return pair_row(console, model, "lies", chunks, len(chunks), num_pairs, known)


def pair_row(
    console: Console, model: Model, name: str, chunks: Sequence[Chunk], batch: int, num_pairs: int, known: Known | None = None
) -> Row:
    """The ratios of CPU seconds with drafting over without; the planner is new in every run."""
    pairs: list[tuple[Outcome, Outcome]] = []
    for number in range(num_pairs):
        order = (OFF, ADAPTIVE) if number % 2 == 0 else (ADAPTIVE, OFF)
        found = {system: model.run(system, chunks, batch, known) for system in order}
        pairs.append((found[OFF], found[ADAPTIVE]))
    console.log(f"{name}: {num_pairs} pairs")
    return row_of(name, model.dtype, batch, pairs)


def row_of(name: str, dtype: str, batch: int, pairs: Sequence[tuple[Outcome, Outcome]]) -> Row:
    ratios = [drafting.timing.cpu_s / plain.timing.cpu_s for plain, drafting in pairs]
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    plain, drafting = pairs[-1]
    return {
        "part": "adversarial", "model": name, "dtype": dtype, "batch": batch, "pairs": len(pairs), "tokens": plain.num_tokens,
        "plain_cpu_s": median(plain.timing.cpu_s for plain, _ in pairs), "ratio": median(ratios), "ratio_quartiles": [low, high],
        "ratios": ratios, "proposed": drafting.proposed, "accepted": drafting.accepted,
        "same_outputs": all(plain.is_same_as(drafting) for plain, drafting in pairs),
    }  # fmt: skip
