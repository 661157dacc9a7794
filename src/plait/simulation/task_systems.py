"""A scenario's settings of tasks and of a compared system, as the objects that a simulation needs."""

from collections.abc import Callable, Sequence

import msgspec

from plait.rollout.buffer_scheduler import BufferScheduler
from plait.rollout.context_scheduler import ContextScheduler, SchedulerLimits
from plait.rollout.scheduler import Scheduler
from plait.simulation.baselines import NoPolicy, OneAtATime, Policy, Rounds, exclusive_scheduler, police
from plait.simulation.costs import CostModel, Efficiency, RooflineCosts
from plait.simulation.engine_kinds import EngineKind
from plait.simulation.hardware import accelerator
from plait.simulation.lengths import Lengths
from plait.simulation.measured_costs import profile_costs
from plait.simulation.model_shapes import model_shape
from plait.simulation.pinned_scheduler import PinnedScheduler
from plait.simulation.scenario import TaskScenario, TaskSettings, TaskSystem
from plait.simulation.task_shape import TaskShape
from plait.tasks.manager import TaskManager

POLICIES: dict[str, Callable[[], Policy]] = {"together": NoPolicy, "rounds": Rounds, "one_at_a_time": OneAtATime}
QUICK_SHARE = 0.1
"""Of the steps, in a quick look."""


def efficiency_of(scenario: TaskScenario) -> Efficiency:
    return msgspec.convert(scenario.efficiency.model_dump(), Efficiency)


def costs(scenario: TaskScenario, num_devices: int) -> CostModel:
    """Of one engine or trainer."""
    if scenario.model.profile:
        return profile_costs(scenario.model.profile)
    device, shape = accelerator(scenario.cluster.accelerator), model_shape(scenario.model.name)
    return RooflineCosts(device, shape, num_devices, scenario.model.trained_share, efficiency_of(scenario))


def manager(system: TaskSystem) -> TaskManager:
    return police(POLICIES[system.sharing]())


def scheduler(system: TaskSystem, engines: Sequence[str]) -> Scheduler:
    if system.scheduler == "pinned":
        return PinnedScheduler(engines)
    if system.scheduler == "exclusive":
        return exclusive_scheduler()
    if system.scheduler == "first_come":
        return BufferScheduler()
    turn_chunks = SchedulerLimits().turn_chunks if system.turn_chunks is None else system.turn_chunks
    limits = SchedulerLimits(turn_chunks=turn_chunks, uses_context=system.scheduler == "context")
    return ContextScheduler(limits=limits)


def engine_kind(system: TaskSystem) -> EngineKind:
    return EngineKind(preempts=system.engine == "preempting", drafts=system.engine == "drafting")


def chunk_tokens(scenario: TaskScenario, system: TaskSystem) -> int:
    if system.whole_answers:
        return max(task.lengths.max_tokens for task in scenario.tasks)
    return system.chunk_tokens or scenario.rollout.chunk_tokens


def shape(task: TaskSettings, system: TaskSystem, number: int, is_quick: bool) -> TaskShape:
    """Of the `number`th task of its kind."""
    staleness = task.max_staleness if system.max_staleness is None else system.max_staleness
    return TaskShape(
        name=task.name if task.count == 1 else f"{task.name}-{number + 1}",
        steps=max(1, round(QUICK_SHARE * task.steps)) if is_quick else task.steps,
        groups_per_step=task.groups_per_step,
        group_size=task.group_size,
        prompt_tokens=task.prompt_tokens,
        lengths=msgspec.convert(task.lengths.model_dump(), Lengths),
        delay_s=task.delay_s,
        delay_sigma=task.delay_sigma,
        turns=task.turns,
        observation_tokens=task.observation_tokens,
        tenant=task.tenant,
        max_staleness=staleness,
        arrival_s=task.arrival_s + number * task.arrival_every_s,
    )
