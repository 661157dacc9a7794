"""Who of a group's deployments is on the device, and how the others come there.

- Whoever finds no room makes others leave, the least recently used first; then versions that nobody samples go, then caches.
- The next deployment may come beside the call that runs (`staging`). Nothing else takes room meanwhile: whoever needs it waits for
  the end of that.
- What is to leave and finds no place stays, and so does all else.
"""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from plait.cluster.groups.device_state import DeviceState
from plait.cluster.groups.group_memory import GroupMemory
from plait.cluster.groups.room_below import Occupant, homeless_bytes
from plait.cluster.groups.staging import Staged, Staging
from plait.types.errors import CapacityError

log = logging.getLogger(__name__)


class Move(NamedTuple):
    """Of a deployment to the device. `problem`: why it is not there."""

    tier: str
    load_s: float
    offloads_s: dict[str, float]
    problem: CapacityError | None


class DeviceRoom:
    """`on_settled` hears of every staging that is over, before anything else happens."""

    def __init__(self, memory: GroupMemory, on_settled: Callable[[Staged], None]) -> None:
        self.memory, self.staging, self._on_settled = memory, Staging(memory), on_settled
        self.states: dict[str, DeviceState] = {}
        """The least recently used first."""

    # ---- who is there

    @property
    def resident_states(self) -> list[DeviceState]:
        """Those that are involved in the staging left out."""
        return [s for s in self.states.values() if not self.staging.involves(s.deployment) and s.is_resident]

    @property
    def resident(self) -> tuple[str, ...]:
        """With the one that is on its way."""
        found = {state.deployment for state in self.resident_states} | {self.staging.arriving}
        return tuple(name for name in self.states if name in found)

    @property
    def footprints(self) -> dict[str, int]:
        return {name: state.num_bytes for name, state in self.states.items()}

    # ---- moves

    def switch(self, leaving: Sequence[str], deployment: str) -> Move:
        self.settle()
        others = [self.states[name] for name in leaving if name in self.states and self.states[name].is_resident]
        offloads_s = {other.deployment: _timed(partial(self.park, other)) for other in others}
        state = self.states.pop(deployment)
        self.states[deployment] = state
        tier, start_s, problem = state.tier, time.perf_counter(), None
        try:
            self._bring(state)
        except CapacityError as error:
            problem = error
        move = Move(tier, time.perf_counter() - start_s, offloads_s, problem)
        self._copy_out()
        return move

    def _bring(self, state: DeviceState) -> None:
        while not state.is_resident:
            try:
                state.unpark()
            except CapacityError:
                if not self._make_room(state):
                    raise

    def _copy_out(self) -> None:
        """What is parked, ahead of being moved, where others will need its room."""
        away = [state for state in self.states.values() if not state.is_resident]
        if any(state.num_bytes > self.memory.free_bytes for state in away):
            for state in away:
                for name in state.kept_groups:
                    self.memory.copy_out(name)

    def park(self, state: DeviceState) -> bool:
        """False: it stays, since what it has finds no place."""
        try:
            state.park()
        except CapacityError as error:
            log.warning("%s stays on the device: %s", state.deployment, error)
        return not state.is_resident

    def stage(self, deployment: str, leaving: Sequence[str] | None, is_busy: Callable[[DeviceState], bool]) -> None:
        """It is needed soon: begin to bring it in, if `leaving` says who goes for it and none of them is busy; else near."""
        state = self.states[deployment]
        if state.is_resident or self.staging.involves(deployment):
            return
        others = [self.states[name] for name in leaving or () if name in self.states and self.states[name].is_resident]
        if leaving is None or self.staging.is_under_way or any(is_busy(other) for other in (state, *others)):
            for name in state.groups:
                self.memory.lift(name)
        else:
            self.staging.start(state, others)

    def settle(self) -> None:
        """Nobody is on the way to the device any more."""
        staged = self.staging.settle()
        if staged is not None:
            self.states[staged.deployment] = self.states.pop(staged.deployment)
            self._on_settled(staged)

    # ---- room

    def fit(self, state: DeviceState, more_bytes: int = 0) -> bool:
        """Room for what a deployment holds now and so much more."""
        if self.staging.is_under_way and not state.is_fitted(more_bytes):
            self.settle()
        while True:
            try:
                state.fit(more_bytes)
                return True
            except CapacityError:
                if not self._make_room(state):
                    return False

    def keep_account(self, state: DeviceState) -> None:
        """Of what it holds now, for which there was room before."""
        if state.is_resident and not self.fit(state):
            log.error("%s holds %d bytes on the device, beyond workers.device_bytes.", state.deployment, state.num_bytes)

    def _make_room(self, needing: DeviceState) -> bool:
        """False: nobody and nothing can leave."""
        others = (state for state in self.resident_states if state is not needing)
        return any(self.park(other) for other in others) or needing.drop_idle_versions() or self.memory.lose_oldest_cache()

    def homeless_bytes(self, state: DeviceState, more_bytes: int = 0, more_parked_bytes: int = 0) -> int:
        """What finds no place at the worst, with so much more of this deployment, which may be new."""
        states = {**self.states, state.deployment: state}
        found = {name: Occupant(one.num_bytes, one.parked_bytes, one.base, one.shared_bytes) for name, one in states.items()}
        own = found[state.deployment]
        found[state.deployment] = own._replace(on_device=own.on_device + more_bytes, parked=own.parked + more_parked_bytes)
        bases = {one.base: self.memory.base_bytes(one.base) for one in states.values()}
        return homeless_bytes(list(found.values()), bases, self.memory.device_bytes, self.memory.below_bytes)


def _timed(action: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    action()
    return time.perf_counter() - start_s
