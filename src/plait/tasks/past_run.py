"""What the event log tells of a run that is resumed."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from plait.observe.events import AnyEvent, EvaluationDone, StepCommitted, TaskStateChanged


@dataclass(frozen=True, slots=True)
class PastRun:
    """By task: held-out accuracy of each version, so that nothing is asked twice, the last step that is logged, the state."""

    evaluations: dict[str, dict[int, float]] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    states: dict[str, TaskStateChanged] = field(default_factory=dict)
    """Those that still hold."""


def past_run(events: Iterable[AnyEvent], keep_states: bool = False) -> PastRun:
    """`keep_states`: what was paused, cancelled or failed stays so; else it goes on."""
    past = PastRun()
    for event in events:
        if isinstance(event, EvaluationDone):
            past.evaluations.setdefault(event.task, {})[event.version] = event.accuracy
        elif isinstance(event, StepCommitted):
            past.steps[event.task] = max(event.step, past.steps.get(event.task, 0))
        elif isinstance(event, TaskStateChanged) and keep_states:
            past.states[event.task] = event
    return past
