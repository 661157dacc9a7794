"""How much each task's held-out accuracy rose, and whether that is enough."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from plait.observe.events import AnyEvent, EvaluationDone, TaskStateChanged
from plait.observe.text import last_line

MIN_QUESTIONS = 64
"""A gain over fewer held-out questions is not counted as one."""


class Gain(msgspec.Struct, frozen=True):
    """Held-out accuracy of one task; None where it was not measured."""

    task: str
    before: float | None
    after: float | None
    num_questions: int
    cause: str = ""
    """Of a task that failed."""

    @property
    def gain(self) -> float | None:
        return None if self.before is None or self.after is None else self.after - self.before

    def as_dict(self) -> dict[str, Any]:
        return {"before": self.before, "after": self.after, "gain": self.gain, "num_questions": self.num_questions}


def gains_of(tasks: Sequence[str], events: Iterable[AnyEvent]) -> list[Gain]:
    """One gain for each task, from the evaluations of version 0 and of the last one that was evaluated."""
    events = list(events)
    done = {(event.task, event.version): event for event in events if isinstance(event, EvaluationDone)}
    states = {event.task: event for event in events if isinstance(event, TaskStateChanged)}
    last = {task: version for task, version in sorted(done) if version > 0}
    gains = [_gain_of(task, done.get((task, 0)), done.get((task, last.get(task, -1)))) for task in tasks]
    return [msgspec.structs.replace(gain, cause=_cause(states.get(gain.task))) for gain in gains]


def _cause(state: TaskStateChanged | None) -> str:
    return (last_line(state.cause) or "no cause is known") if state is not None and state.state == "failed" else ""


def is_enough(gains: Iterable[Gain], min_gain: float) -> bool:
    return all(_is_enough(gain, min_gain) for gain in gains)


def describe_gains(gains: Sequence[Gain], min_gain: float | None) -> str:
    """A line for each task: accuracy before, after, the rise, and with a bar to reach whether it did."""
    width = max(len(gain.task) for gain in gains)
    lines = []
    for gain in gains:
        if gain.cause:
            lines.append(f"{gain.task:<{width}}  failed: {gain.cause}")
            continue
        verdict = "" if min_gain is None else "  ok" if _is_enough(gain, min_gain) else f"  below the bar of {min_gain:+.2f}"
        lines.append(f"{gain.task:<{width}}  held-out accuracy {_measured(gain)}{verdict}")
    return "\n".join(lines)


def _gain_of(task: str, before: EvaluationDone | None, after: EvaluationDone | None) -> Gain:
    questions = min(event.num_questions if event else 0 for event in (before, after))
    return Gain(task, before.accuracy if before else None, after.accuracy if after else None, questions)


def _is_enough(gain: Gain, min_gain: float) -> bool:
    return gain.gain is not None and gain.gain >= min_gain and gain.num_questions >= MIN_QUESTIONS


def _measured(gain: Gain) -> str:
    if gain.before is None and gain.after is None:
        return "not measured"
    return f"{_number(gain.before)} -> {_number(gain.after)}{_rise(gain)}"


def _number(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.3f}"


def _rise(gain: Gain) -> str:
    return "" if gain.gain is None else f"  ({gain.gain:+.3f} over {gain.num_questions} questions)"
