"""Which engine a simulated rollout has: Plait's own, with drafts, or one that preempts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from plait.simulation.drafting_engine import DraftingEngine
from plait.simulation.drafts import SEER_ACCEPTANCE, AcceptanceTable, DraftModel
from plait.simulation.engine import SimulatedEngine
from plait.simulation.preempting_engine import PreemptingEngine


@dataclass(frozen=True, slots=True)
class EngineKind:
    preempts: bool = False
    """Memory is its own affair; it gives up rows where it overflows."""
    drafts: bool = False
    acceptance: AcceptanceTable = SEER_ACCEPTANCE


def make_engine(
    kind: EngineKind, basics: tuple[Any, ...], size: Mapping[str, int], siblings_of: Callable[[str], int]
) -> SimulatedEngine:
    """`basics` are the arguments of `SimulatedEngine`."""
    if kind.preempts:
        return PreemptingEngine(*basics, **size)
    if kind.drafts:
        return DraftingEngine(*basics, drafts=DraftModel(basics[2], kind.acceptance), siblings_of=siblings_of)
    return SimulatedEngine(*basics)
