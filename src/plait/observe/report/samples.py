"""Which answers the report shows, and how. The samples are passed in; nothing is read here."""

import itertools
from collections.abc import Sequence
from typing import Protocol

import msgspec

from plait.observe.text import printable
from plait.types.trajectory import Trajectory

NUM_QUESTIONS = 4
"""How many questions are shown of each step and of the evaluation."""

MAX_TEXT_CHARACTERS = 4_000


class Sample(Protocol):
    """What `plait.state.samples.SampleRecord` is."""

    @property
    def step(self) -> int: ...
    @property
    def trajectory(self) -> Trajectory: ...
    @property
    def prompt_text(self) -> str: ...
    @property
    def answer_texts(self) -> tuple[str, ...]: ...
    @property
    def feedback_texts(self) -> tuple[str, ...]: ...


class TaskSamples(msgspec.Struct, frozen=True, kw_only=True):
    """One task's samples: of its first and last step, and of its first and last evaluation."""

    task: str
    first: Sequence[Sample] = ()
    last: Sequence[Sample] = ()
    evaluation_first: Sequence[Sample] = ()
    evaluation_last: Sequence[Sample] = ()


class Turn(msgspec.Struct, frozen=True):
    answer: str
    feedback: str


class SampleView(msgspec.Struct, frozen=True):
    caption: str
    """Which step or version it is of."""
    prompt: str
    turns: tuple[Turn, ...]
    reward: float
    stop: str


class SampleGroup(msgspec.Struct, frozen=True):
    title: str
    num_columns: int
    rows: tuple[tuple[SampleView, ...], ...]


class TaskSampleView(msgspec.Struct, frozen=True):
    task: str
    groups: tuple[SampleGroup, ...]


def sample_views(tasks: Sequence[TaskSamples]) -> list[TaskSampleView]:
    views = [TaskSampleView(samples.task, tuple(_groups(samples))) for samples in tasks]
    return [view for view in views if view.groups]


def _groups(samples: TaskSamples) -> list[SampleGroup]:
    before, after = _same_questions(samples.evaluation_first, samples.evaluation_last)
    groups = [
        _group("The same held-out questions, before and after", "version", before, after),
        _group("Training rollouts, first and last step", "step", _one_per_question(samples.first), _one_per_question(samples.last)),
    ]
    return [group for group in groups if group.rows]


def _group(title: str, noun: str, *columns: list[Sample]) -> SampleGroup:
    """One column for each list that is not empty; the first samples of all lists are the first row."""
    filled = [column for column in columns if column]
    rows = tuple(tuple(_view(sample, noun) for sample in row if sample) for row in itertools.zip_longest(*filled))
    return SampleGroup(title, len(filled), rows)


def _one_per_question(samples: Sequence[Sample]) -> list[Sample]:
    """The first sample of each of the first questions: not picked by how good it is."""
    by_group: dict[int, Sample] = {}
    for sample in sorted(samples, key=lambda sample: (sample.trajectory.group_index, sample.trajectory.sample_index)):
        by_group.setdefault(sample.trajectory.group_index, sample)
    return list(by_group.values())[:NUM_QUESTIONS]


def _same_questions(before: Sequence[Sample], after: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """The first questions that both have, in one order; without a later evaluation, the first ones there are."""
    later = {sample.trajectory.example_id: sample for sample in after}
    if not later:
        return list(before[:NUM_QUESTIONS]), []
    shared = {sample.trajectory.example_id: sample for sample in before if sample.trajectory.example_id in later}
    names = list(shared)[:NUM_QUESTIONS]
    return [shared[name] for name in names], [later[name] for name in names]


def _view(sample: Sample, noun: str) -> SampleView:
    feedback = [*sample.feedback_texts, *[""] * len(sample.answer_texts)]
    turns = tuple(Turn(_shorten(answer), _shorten(back)) for answer, back in zip(sample.answer_texts, feedback, strict=False))
    trajectory = sample.trajectory
    return SampleView(
        f"{noun} {sample.step}", _shorten(sample.prompt_text), turns, trajectory.reward, trajectory.stop.replace("_", " ")
    )


def _shorten(text: str) -> str:
    text = printable(text)
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text
    return f"{text[:MAX_TEXT_CHARACTERS]}… ({len(text) - MAX_TEXT_CHARACTERS:,} more characters)"
