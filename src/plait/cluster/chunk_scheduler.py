"""The scheduler of a deployment's chunks, as its settings ask for."""

from plait.cluster.configurations import ComputeSettings
from plait.cluster.kv_tiers import make_router
from plait.rollout.buffer import TURNS
from plait.rollout.context_scheduler import ContextScheduler, SchedulerLimits


def make_scheduler(settings: ComputeSettings) -> ContextScheduler:
    """As `engine.scheduling` says, with turns such that `TURNS` queues share the rows when all have more work than fits."""
    num_rows = settings.workers.rollout_engines * settings.engine.max_rows
    uses_context = settings.engine.scheduling == "context"
    limits = SchedulerLimits(turn_chunks=max(1, num_rows // TURNS), uses_context=uses_context)
    return ContextScheduler(limits=limits, router=make_router(settings))
