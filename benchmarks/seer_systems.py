"""Who decides which engine gets what, system by system. All have the same engines, memory for rows, and requests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from plait.rollout.context_scheduler import ContextScheduler, SchedulerLimits
from plait.rollout.scheduler import Scheduler
from plait.simulation.pinned_scheduler import PinnedScheduler


@dataclass(frozen=True, slots=True)
class System:
    name: str
    make_scheduler: Callable[[Sequence[str]], Scheduler]
    preempts: bool = False
    drafts: bool = False
    knows_lengths: bool = False
    """Requests come with their true lengths, each on its own: longest first is then exact."""
    over_issue: int = 1
    """So many times the requests are issued, and the first to finish are kept."""


def divided(uses_context: bool) -> Callable[[Sequence[str]], Scheduler]:
    return lambda engines: ContextScheduler(limits=SchedulerLimits(uses_context=uses_context))


SYSTEMS = (
    System("pinned groups", PinnedScheduler, preempts=True),
    System("+ divided", divided(uses_context=False)),
    System("+ context", divided(uses_context=True)),
    System("+ drafting", divided(uses_context=True), drafts=True),
    System("oracle", divided(uses_context=True), knows_lengths=True),
    System("partial rollout", PinnedScheduler, preempts=True, over_issue=2),
)
"""The first is how synchronous veRL rolls out; the next three add one mechanism each."""
