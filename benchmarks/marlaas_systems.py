"""The systems of the comparison: the same components under different policies."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.marlaas_policies import NoPolicy, OneAtATime, Policy, Rounds

MAX_ROWS = 64


@dataclass(frozen=True, slots=True)
class System:
    name: str
    is_shared: bool = False
    """One process rolls out and trains, with both threads; else a process each."""
    policy: Callable[[], Policy] = NoPolicy
    is_exclusive: bool = False
    """The engine decodes one task's rows at a time."""
    is_staged: bool = False
    """No environment answers before all generations under way have ended."""


PLAIT = System("plait")
SEQUENTIAL = System("sequential", is_shared=True, policy=OneAtATime)
DISAGGREGATED = System("disaggregated", policy=OneAtATime)
SYNCHRONOUS = System("synchronous_multi_lora", is_shared=True, policy=Rounds, is_staged=True)
WITHOUT_ASYNC = System("plait_without_async", policy=Rounds)
WITHOUT_MULTI_LORA = System("plait_without_multi_lora", is_exclusive=True)

SYSTEMS = (PLAIT, SEQUENTIAL, DISAGGREGATED, SYNCHRONOUS, WITHOUT_ASYNC, WITHOUT_MULTI_LORA)

ALONE_SYSTEMS = (PLAIT, SEQUENTIAL, DISAGGREGATED)
"""Those that differ also where there is one task only."""
