"""What the event log tells of a run that is resumed."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from plait.observe.events import AnyEvent, EvaluationDone, StepCommitted


@dataclass(frozen=True, slots=True)
class PastRun:
    """By task: held-out accuracy of each version, so that nothing is asked twice, and the last step that is logged."""

    evaluations: dict[str, dict[int, float]] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)


def past_run(events: Iterable[AnyEvent]) -> PastRun:
    past = PastRun()
    for event in events:
        if isinstance(event, EvaluationDone):
            past.evaluations.setdefault(event.task, {})[event.version] = event.accuracy
        elif isinstance(event, StepCommitted):
            past.steps[event.task] = max(event.step, past.steps.get(event.task, 0))
    return past
