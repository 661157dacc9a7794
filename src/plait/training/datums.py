"""From finished episodes to training sequences.

- Only sampled tokens count; what stands after the last one is cut off.
- The normaliser, 1 / number of sampled tokens of the step (those of left-out groups too), is folded into advantages and
  weights here, before anything is cut into micro-batches. Losses stay sums, and clipping means the same at any size.
- What cannot move the weights is left out: groups whose advantages are all zero (counted) and, in other groups, answers of
  advantage zero; unless a penalty towards the base acts on them. dro's own penalty does not keep a group.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, groupby

import msgspec

from plait.config.task import LossSettings
from plait.training.advantages import group_advantages
from plait.types.datum import Datum
from plait.types.errors import ConfigError
from plait.types.trajectory import Trajectory, TrajectoryBatch


class DatumBatch(msgspec.Struct, frozen=True):
    """What one step trains on. Without datums the step is a no-op that still advances the version."""

    datums: tuple[Datum, ...]
    num_sequences: int
    """Trajectories that came in."""
    num_sampled_tokens: int
    """Sampled tokens that came in: the normaliser."""
    num_trained_tokens: int
    """Counted positions in `datums`."""
    num_groups: int
    num_groups_without_gradient: int = 0


def trajectory_datums(batch: TrajectoryBatch, advantage: str, loss: LossSettings, temperature: float) -> DatumBatch:
    """Datums of one step, in the batch's order.

    `weights` are the normaliser at sampled positions and 0 elsewhere; under loss cross_entropy they are the normalised
    advantages. `temperature` is what the tokens were drawn at. Raises ConfigError if a sampled token has nothing before it.
    """
    num_sampled = sum(trajectory.num_sampled_tokens for trajectory in batch.trajectories)
    datums: list[Datum] = []
    num_groups = num_dead = 0
    for _, members in groupby(batch.trajectories, key=lambda trajectory: trajectory.group_index):
        group = list(members)
        advantages_G = group_advantages(advantage, [trajectory.reward for trajectory in group])
        is_dead = not any(advantages_G) and loss.kl_to_base == 0
        num_groups, num_dead = num_groups + 1, num_dead + is_dead
        if not is_dead:
            datums += _group_datums(group, advantages_G, loss, temperature, num_sampled)
    return DatumBatch(
        datums=tuple(datums),
        num_sequences=len(batch.trajectories),
        num_sampled_tokens=num_sampled,
        num_trained_tokens=sum(len(counted_positions(datum)) for datum in datums),
        num_groups=num_groups,
        num_groups_without_gradient=num_dead,
    )


def _group_datums(
    group: Sequence[Trajectory], advantages_G: Sequence[float], loss: LossSettings, temperature: float, num_sampled: int
) -> list[Datum]:
    is_penalised = loss.kl_to_base > 0 or loss.kind == "dro"
    return [
        trajectory_datum(trajectory, advantage, loss, temperature, num_sampled)
        for trajectory, advantage in zip(group, advantages_G, strict=True)
        if trajectory.num_sampled_tokens and (advantage or is_penalised)
    ]


def trajectory_datum(trajectory: Trajectory, advantage: float, loss: LossSettings, temperature: float, num_sampled: int) -> Datum:
    """One episode as a shifted sequence whose sampled positions carry `advantage / num_sampled`."""
    segments = _until_last_sampled(trajectory)
    is_sampled_T = _flags((len(segment.tokens), segment.is_sampled) for segment in segments)
    tokens = tuple(chain.from_iterable(segment.tokens for segment in segments))
    if is_sampled_T[0]:
        raise ConfigError(f"example {trajectory.example_id!r} begins with a sampled token.", "Begin with a prompt.")
    logprobs = chain.from_iterable(s.logprobs if s.is_sampled else (0.0,) * len(s.tokens) for s in segments)
    weight = advantage / num_sampled if loss.kind == "cross_entropy" else 1.0 / num_sampled
    return Datum(
        tokens=tokens[:-1],
        target_tokens=tokens[1:],
        weights=tuple(weight if sampled else 0.0 for sampled in is_sampled_T[1:]),
        logprobs=tuple(logprobs)[1:],
        advantages=tuple(advantage / num_sampled if sampled else 0.0 for sampled in is_sampled_T[1:]),
        temperature=temperature,
    )


def _until_last_sampled(trajectory: Trajectory) -> tuple:
    segments = trajectory.segments
    last = max(index for index, segment in enumerate(segments) if segment.is_sampled and segment.tokens)
    return segments[: last + 1]


def demonstration_datums(demonstrations: Sequence[Sequence[Sequence[int]]]) -> DatumBatch:
    """A supervised step on worked answers, for loss cross_entropy; weights are 1 / number of answer tokens of the step.

    A demonstration is a list of token spans: prompt, answer, then for more turns what the environment says and the next
    answer, and so on.
    """
    num_answer_tokens = sum(len(answer) for spans in demonstrations for answer in spans[1::2])
    datums = tuple(demonstration_datum(*spans, weight=1.0 / max(num_answer_tokens, 1)) for spans in demonstrations)
    return DatumBatch(
        datums=datums,
        num_sequences=len(datums),
        num_sampled_tokens=num_answer_tokens,
        num_trained_tokens=num_answer_tokens,
        num_groups=len(datums),
    )


def demonstration_datum(
    prompt_tokens: Sequence[int], answer_tokens: Sequence[int], *more: Sequence[int], weight: float = 1.0
) -> Datum:
    """One worked answer; `more` alternates between given and answer tokens. Raises ConfigError if the prompt is empty."""
    spans = (prompt_tokens, answer_tokens, *more)
    if not prompt_tokens or not answer_tokens or len(spans) % 2:
        sizes = [len(span) for span in spans]
        raise ConfigError(f"a demonstration has spans of {sizes} tokens.", "Alternate a prompt and an answer, neither empty.")
    tokens = tuple(chain.from_iterable(spans))
    is_answer_T = _flags((len(span), index % 2 == 1) for index, span in enumerate(spans))
    weights = tuple(weight if answer else 0.0 for answer in is_answer_T[1:])
    return Datum(tokens=tokens[:-1], target_tokens=tokens[1:], weights=weights)


def counted_positions(datum: Datum) -> list[int]:
    """Positions whose log-probability the loss reads: those of a weight other than zero; all if there are no weights."""
    return [t for t, weight in enumerate(datum.weights) if weight] if datum.weights else list(range(len(datum.tokens)))


def sampled_positions(datum: Datum) -> list[int]:
    """Counted positions that a sampler drew; without weights to tell, those of an advantage other than zero."""
    if datum.weights or not datum.advantages:
        return counted_positions(datum)
    return [t for t, advantage in enumerate(datum.advantages) if advantage]


def _flags(runs: Iterable[tuple[int, bool]]) -> list[bool]:
    return list(chain.from_iterable([flag] * length for length, flag in runs))
