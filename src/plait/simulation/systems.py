"""The systems that MARLaaS and Seer are compared with, as arrangements of the service's own objects: a row each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from plait.rollout.context_scheduler import ContextScheduler, SchedulerLimits
from plait.rollout.scheduler import Scheduler
from plait.simulation.engine_kinds import EngineKind
from plait.simulation.exclusive_buffer import exclusive_scheduler
from plait.simulation.manager_policies import NoPolicy, OneAtATime, Policy, Rounds
from plait.simulation.pinned_scheduler import PinnedScheduler
from plait.types.errors import ConfigError


def contextual(engines: Sequence[str]) -> Scheduler:
    return ContextScheduler()


def divided(engines: Sequence[str]) -> Scheduler:
    return ContextScheduler(limits=SchedulerLimits(uses_context=False))


def one_task_at_a_time(engines: Sequence[str]) -> Scheduler:
    return exclusive_scheduler()


OWN, PREEMPTING, DRAFTING = EngineKind(), EngineKind(preempts=True), EngineKind(drafts=True)


@dataclass(frozen=True, slots=True)
class System:
    name: str
    policy: Callable[[], Policy] = NoPolicy
    """Between the task manager and what it commands."""
    make_scheduler: Callable[[Sequence[str]], Scheduler] = contextual
    """From the engines' names."""
    kind: EngineKind = OWN
    is_shared: bool = False
    """The same devices roll out and train; else some do one, some the other."""
    is_staged: bool = False
    """No environment answers before all generations under way have ended."""
    knows_lengths: bool = False
    """Requests come with their true lengths, each on its own: longest first is then exact."""
    over_issue: int = 1
    """So many times the groups are issued; the first requests to finish are kept, the others thrown away."""


PLAIT = System("plait")
MARLAAS_SYSTEMS = (
    PLAIT,
    System("sequential", OneAtATime, is_shared=True),
    System("disaggregated", OneAtATime),
    System("synchronous_multi_lora", Rounds, is_shared=True, is_staged=True),
    System("without_async", Rounds),
    System("without_multi_lora", make_scheduler=one_task_at_a_time),
)
SEER_SYSTEMS = (
    System("pinned_groups", make_scheduler=PinnedScheduler, kind=PREEMPTING),
    System("divided", make_scheduler=divided),
    System("context", make_scheduler=contextual),
    System("drafting", make_scheduler=contextual, kind=DRAFTING),
    System("oracle", make_scheduler=contextual, knows_lengths=True),
    System("partial_rollout", make_scheduler=PinnedScheduler, kind=PREEMPTING, over_issue=2),
)
"""The first is how synchronous frameworks roll out; the next three add one mechanism each."""
SYSTEMS = {system.name: system for system in (*MARLAAS_SYSTEMS, *SEER_SYSTEMS)}


def system_named(name: str, field: str = "system") -> System:
    """Raises ConfigError naming `field` for an unknown one."""
    if name not in SYSTEMS:
        near = get_close_matches(name, SYSTEMS, n=1, cutoff=0.3)
        hint = f'Did you mean "{near[0]}"? ' if near else ""
        raise ConfigError(f'{field} = "{name}" is not known.', f"{hint}Known are {', '.join(SYSTEMS)}.")
    return SYSTEMS[name]
