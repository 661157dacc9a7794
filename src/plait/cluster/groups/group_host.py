"""The deployments of a worker group's process: who is on the device, and the call that runs.

- Messages inside frames are the worker's own; what it says comes back with its deployment's name.
- A call is over when its deployment has no more training to do, whatever became of it; a turn of sampling is the controller's.
- A call whose deployment finds no room on the device (`device_room`) fails, and all is as it was.
"""

import logging
import time
from collections.abc import Callable

from plait.cluster.groups.base_weights import BASE
from plait.cluster.groups.device_room import DeviceRoom
from plait.cluster.groups.device_state import DeviceState
from plait.cluster.groups.group_memory import GroupMemory
from plait.cluster.groups.loaded_worker import load_worker
from plait.cluster.groups.messages import (
    CallOver,
    FromDeployment,
    FromGroup,
    Host,
    Pass,
    Prefetch,
    Prefetched,
    RunCall,
    Switch,
    Switched,
    ToGroup,
    Unhost,
    Unhosted,
)
from plait.cluster.groups.openings import BYTES_PER_PARAMETER, opened_values, opening_bytes, version_bytes
from plait.cluster.groups.refusals import no_place_below, no_room_to_open, no_way_onto_device, refusal
from plait.cluster.groups.staging import Staged
from plait.cluster.messages import FromWorker, StartFailed, SubmitChunks, ToWorker
from plait.cluster.model_messages import DiscardGradients, ScorePrompt
from plait.cluster.rollout_role import RolloutRole
from plait.types.errors import CapacityError, PlaitError
from plait.types.policy import AdapterRef

log = logging.getLogger(__name__)


class GroupHost:
    """`send` is told everything that the controller is to hear."""

    def __init__(self, send: Callable[[FromGroup], None], memory: GroupMemory) -> None:
        self._send, self.memory = send, memory
        self._room = DeviceRoom(memory, self._tell_staged)
        self.states = self._room.states
        self._held: list[Pass] = []
        """For deployments that are involved in the staging."""
        self._call: RunCall | None = None
        self._call_start_s = 0.0

    @property
    def has_work(self) -> bool:
        return self._call is not None or any(state.worker.has_work for state in self.states.values())

    def handle(self, frame: ToGroup) -> None:
        match frame:
            case Host():
                self._host(frame)
            case Unhost(deployment):
                self._unhost(deployment)
            case Pass(deployment) if deployment in self.states:
                self._pass(frame)
            case RunCall():
                self._begin(frame)
            case Switch(leaving, deployment):
                self._switch(leaving, deployment)
            case Prefetch(deployment, leaving) if deployment in self.states:
                self._room.stage(deployment, leaving, self._is_busy)

    def work(self) -> None:
        """One piece of each kind that waits."""
        if self._room.staging.is_over:
            self.settle()
        for state in list(self.states.values()):
            if state.worker.has_work:
                num_before = state.worker.num_adapter_loads
                state.worker.step()
                if state.worker.num_adapter_loads != num_before:
                    self._room.keep_account(state)
        if self._call is not None and not self.states[self._call.deployment].worker.jobs.has_work:
            self._end_call(self._call)

    def go_idle(self) -> None:
        for state in self.states.values():
            state.worker.go_idle()

    # ---- deployments

    def _host(self, frame: Host) -> None:
        self.settle()
        start_s = time.perf_counter()
        said: list[FromWorker] = []
        for other in self._room.resident_states:
            self._room.park(other)
        try:
            state = self._load(frame, said)
        except PlaitError as error:
            said = [StartFailed(error.message, error.remedy)]
        else:
            self.states[frame.deployment] = state
            state.worker.send = self._teller(frame.deployment)
        for message in said:
            self._send(FromDeployment(frame.deployment, message))
        self._send(CallOver(frame.call_id, time.perf_counter() - start_s, self._room.footprints, self._room.resident))

    def _load(self, frame: Host, said: list[FromWorker]) -> DeviceState:
        worker, weights = load_worker(frame.settings, self._teller(frame.deployment), said)
        base, state = f"{BASE}{worker.base_digest} {frame.settings.dtype}", None
        try:
            self.memory.hold_base(base, weights)
            weights.clear()
            state = DeviceState(frame.deployment, worker, base, self.memory)
            self._check_fits(state)
        except PlaitError as error:
            worker.close()
            if state is not None:
                state.close()
            self._drop_unused(base)
            if not isinstance(error, CapacityError):
                raise
            raise CapacityError(no_way_onto_device(frame.deployment, error, self.memory)) from error
        if isinstance(worker.rollout, RolloutRole):
            worker.rollout.engine.adapters.claim = lambda ref: self._claim(state, ref)
        return state

    def _check_fits(self, state: DeviceState) -> None:
        if state.num_bytes > self.memory.device_bytes:
            raise CapacityError(f"it takes {state.num_bytes} bytes there, lower engine.slot_tokens or engine.pool_tokens")
        state.fit()
        if lacking := self._room.homeless_bytes(state):
            raise CapacityError(no_place_below(lacking, self.memory))

    def _teller(self, deployment: str) -> Callable[[FromWorker], None]:
        return lambda message: self._send(FromDeployment(deployment, message))

    def _unhost(self, deployment: str) -> None:
        self.settle()
        state = self.states.pop(deployment, None)
        if state is not None:
            state.worker.close()
            state.close()
            self._drop_unused(state.base)
        if self._call is not None and self._call.deployment == deployment:
            self._end_call(self._call)
        self._send(Unhosted(deployment, self._room.footprints, self._room.resident))

    def _drop_unused(self, base: str) -> None:
        if all(other.base != base for other in self.states.values()):
            self.memory.drop_base(base)

    # ---- calls

    def _pass(self, frame: Pass) -> None:
        state, message = self.states[frame.deployment], frame.message
        if not isinstance(message, SubmitChunks | ScorePrompt):
            if self._room.staging.involves(frame.deployment):
                self._held.append(frame)
            else:
                state.worker.handle(message)
            return
        if self._is_there(frame.deployment, message):
            state.worker.handle(message)

    def _is_there(self, deployment: str, message: ToWorker) -> bool:
        """On the device, where whoever had to leave to make room comes back, which the controller did not know of. False: it cannot
        come, which is the answer to the message."""
        if self._room.staging.involves(deployment):
            self.settle()
        if not self.states[deployment].is_resident:
            problem = self._switch((), deployment)
            if problem is not None:
                self._refuse(deployment, message, no_way_onto_device(deployment, problem, self.memory))
        return self.states[deployment].is_resident

    def _refuse(self, deployment: str, message: ToWorker, error: str) -> None:
        log.warning("%s", error)
        for answer in refusal(message, error):
            self._send(FromDeployment(deployment, answer))

    def _begin(self, frame: RunCall) -> None:
        self._call, self._call_start_s = frame, time.perf_counter()
        state = self.states[frame.deployment]
        is_away = not state.is_resident and not self._room.staging.involves(frame.deployment)
        if isinstance(frame.message, DiscardGradients) and is_away:
            state.discard_gradients(frame.message.model_id)
        elif self._is_there(frame.deployment, frame.message):
            self._call_start_s = time.perf_counter()
            self._open_or_run(state, frame.message)

    def _open_or_run(self, state: DeviceState, message: ToWorker) -> None:
        decoder = state.worker.decoders[-1]
        num_bytes = opening_bytes(message, decoder.config, decoder.dtype.itemsize)
        parked_bytes = BYTES_PER_PARAMETER * opened_values(message, decoder.config)[0]
        if num_bytes and (lacking := self._room.homeless_bytes(state, num_bytes, parked_bytes)):
            self._refuse(state.deployment, message, no_place_below(lacking, self.memory))
        elif num_bytes and not self._room.fit(state, num_bytes):
            self._refuse(state.deployment, message, no_room_to_open(num_bytes, self.memory))
        else:
            state.worker.handle(message)

    def _end_call(self, call: RunCall) -> None:
        self._call = None
        if call.deployment in self.states:
            self._room.keep_account(self.states[call.deployment])
        self._send(CallOver(call.call_id, time.perf_counter() - self._call_start_s, self._room.footprints, self._room.resident))

    # ---- the device

    def settle(self) -> None:
        """Nobody is on the way to the device any more."""
        self._room.settle()

    def _tell_staged(self, staged: Staged) -> None:
        self._send(Prefetched(*staged, self._room.footprints, self._room.resident))
        held, self._held = self._held, []
        for frame in held:
            self._pass(frame)

    def _switch(self, leaving: tuple[str, ...], deployment: str) -> CapacityError | None:
        """Why it is not on the device afterwards."""
        move = self._room.switch(leaving, deployment)
        self._send(Switched(deployment, move.tier, move.load_s, move.offloads_s, self._room.footprints, self._room.resident))
        return move.problem

    def _is_busy(self, state: DeviceState) -> bool:
        return state.worker.has_work or (self._call is not None and self._call.deployment == state.deployment)

    def _claim(self, state: DeviceState, ref: AdapterRef) -> bool:
        """Room for a version that is to be rolled out."""
        decoder = state.worker.decoders[0]
        is_host = decoder.device.type == "cpu"
        return self._room.fit(state, version_bytes(ref, decoder.config, decoder.dtype.itemsize, is_host))
