"""Lengths of answers as a run had them, instead of drawn ones."""

import math
from collections.abc import Sequence
from statistics import fmean, pvariance

from plait.simulation.lengths import Lengths
from plait.simulation.run_trace import Conversation, TaskTrace


class RecordedLengths(Lengths, frozen=True):
    """Step n has the answers of recorded step n + `offset`, from the first one on again after the last.

    Its other numbers are those of lognormal lengths that are like the recorded ones.
    """

    steps: tuple[tuple[tuple[Conversation, ...], ...], ...] = ()
    group_size: int = 1
    offset: int = 0

    def draw(self, seed: str, group: str, sample: int) -> int:
        """`group`: "task/step/number", the step from 1 on; `sample`: number in the group, plus its size for each turn."""
        _, step, number = group.rsplit("/", 2)
        groups = self.steps[(int(step) - 1 + self.offset) % len(self.steps)]
        conversations = groups[int(number) % len(groups)]
        turn, place = divmod(sample, self.group_size)
        drawn = conversations[place % len(conversations)]
        return max(1, min(self.max_tokens, drawn[turn]))


def recorded_lengths(trace: TaskTrace, offset: int = 0) -> RecordedLengths:
    steps = tuple(
        tuple(tuple(with_turns(drawn, trace.turns) for drawn in group) for group in groups) for groups in trace.steps if groups
    )
    groups = [[length for drawn in group for length in drawn] for groups in steps for group in groups]
    logs = [[math.log(length) for length in group] for group in groups]
    values = [value for group in logs for value in group]
    return RecordedLengths(
        median_tokens=math.exp(fmean(values)),
        sigma=math.sqrt(pvariance(values)) if len(values) > 1 else 0.0,
        correlation=correlation(logs),
        max_tokens=max(length for group in groups for length in group),
        steps=steps, group_size=trace.group_size, offset=offset,
    )  # fmt: skip


def with_turns(drawn: Conversation, turns: int) -> Conversation:
    """The same tokens in so many turns: what is too much joins the last one, what is missing comes from an even split."""
    if len(drawn) > turns:
        return (*drawn[: turns - 1], sum(drawn[turns - 1 :]))
    if len(drawn) == turns:
        return drawn
    share, rest = divmod(max(turns, sum(drawn)), turns)
    return tuple(share + (turn < rest) for turn in range(turns))


def correlation(groups: Sequence[Sequence[float]]) -> float:
    """Intraclass, by the mean squares between and within groups (Fisher, "Statistical Methods for Research Workers", 1925)."""
    sizes = [len(group) for group in groups]
    num, total = len(groups), sum(sizes)
    if num < 2 or total <= num:
        return 0.0
    mean = fmean(value for group in groups for value in group)
    means = [fmean(group) for group in groups]
    between = sum(size * (group_mean - mean) ** 2 for size, group_mean in zip(sizes, means, strict=True)) / (num - 1)
    within_sum = sum((value - group_mean) ** 2 for group, group_mean in zip(groups, means, strict=True) for value in group)
    within = within_sum / (total - num)
    size = (total - sum(each * each for each in sizes) / total) / (num - 1)
    whole = between + (size - 1) * within
    return min(1.0, max(0.0, (between - within) / whole)) if whole > 0 else 0.0
