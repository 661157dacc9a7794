"""The deployments of a worker group's process: who is on the device, and the call that runs.

- Messages inside frames are the worker's own; what it says comes back with its deployment's name.
- A call is over when its deployment has no more training to do, whatever became of it; a turn of sampling is the controller's.
- A deployment that finds no room on the device makes the others leave it, the least recently used first.
"""

import time
from collections.abc import Callable
from pathlib import Path

import torch

from plait.cluster.groups.device_state import DeviceState
from plait.cluster.groups.group_memory import BASE, GroupMemory
from plait.cluster.groups.messages import (
    CallOver,
    FromDeployment,
    FromGroup,
    Host,
    Pass,
    Prefetch,
    RunCall,
    Switch,
    Switched,
    ToGroup,
    Unhost,
    Unhosted,
)
from plait.cluster.groups.openings import opening_bytes, refusal
from plait.cluster.messages import FromWorker, StartFailed, Starting, SubmitChunks
from plait.cluster.model_messages import ScorePrompt
from plait.cluster.worker import Weights, Worker
from plait.models.weights import load_model
from plait.types.errors import CapacityError, PlaitError
from plait.types.model import ModelConfig


class GroupHost:
    """`send` is told everything that the controller is to hear."""

    def __init__(self, send: Callable[[FromGroup], None], memory: GroupMemory) -> None:
        self._send, self.memory = send, memory
        self.states: dict[str, DeviceState] = {}
        """The least recently used first."""
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
            case Pass(deployment, message) if deployment in self.states:
                if isinstance(message, SubmitChunks | ScorePrompt):
                    self._ensure_resident(deployment)
                self.states[deployment].worker.handle(message)
            case RunCall():
                self._begin(frame)
            case Switch():
                self._switch(frame)
            case Prefetch(deployment) if deployment in self.states:
                for name in self.states[deployment].groups:
                    self.memory.lift(name)

    def work(self) -> None:
        """One piece of each kind that waits."""
        for state in list(self.states.values()):
            if state.worker.has_work:
                num_before = state.worker.num_adapter_loads
                state.worker.step()
                if state.worker.num_adapter_loads != num_before:
                    self._fit(state)
        if self._call is not None and not self.states[self._call.deployment].worker.jobs.has_work:
            self._end_call(self._call)

    def go_idle(self) -> None:
        for state in self.states.values():
            state.worker.go_idle()

    # ---- deployments

    def _host(self, frame: Host) -> None:
        start_s = time.perf_counter()
        said: list[FromWorker] = []
        for state in self._resident_states():
            state.park()
        try:
            state = self._load(frame, said)
        except PlaitError as error:
            said = [StartFailed(error.message, error.remedy)]
        else:
            self.states[frame.deployment] = state
            state.worker.send = self._teller(frame.deployment)
        for message in said:
            self._send(FromDeployment(frame.deployment, message))
        self._send(CallOver(frame.call_id, time.perf_counter() - start_s, self._footprints(), self._resident()))

    def _load(self, frame: Host, said: list[FromWorker]) -> DeviceState:
        weights: Weights = {}

        def load(path: Path, dtype: torch.dtype, device: torch.device) -> tuple[ModelConfig, Weights]:
            config, loaded = load_model(path, dtype, device)
            weights.update(loaded)
            return config, loaded

        def say(message: FromWorker) -> None:
            """What is under way at once; the rest when it is known whether there is room."""
            if isinstance(message, Starting):
                self._send(FromDeployment(frame.deployment, message))
            else:
                said.append(message)

        worker = Worker(say, frame.settings, load)
        base = f"{BASE}{worker.base_digest} {frame.settings.dtype}"
        self.memory.hold_base(base, weights)
        weights.clear()
        state = DeviceState(frame.deployment, worker, base, self.memory)
        try:
            state.fit()
        except CapacityError as error:
            state.close()
            if all(other.base != base for other in self.states.values()):
                self.memory.drop_base(base)
            budget = self.memory.device_bytes
            raise CapacityError(
                f"{frame.deployment} takes {state.num_bytes} bytes on the device, workers.device_bytes is {budget}.",
                "Raise it, or lower engine.slot_tokens and engine.pool_tokens.",
            ) from error
        return state

    def _teller(self, deployment: str) -> Callable[[FromWorker], None]:
        return lambda message: self._send(FromDeployment(deployment, message))

    def _unhost(self, deployment: str) -> None:
        state = self.states.pop(deployment, None)
        if state is not None:
            state.worker.close()
            state.close()
            if all(other.base != state.base for other in self.states.values()):
                self.memory.drop_base(state.base)
        if self._call is not None and self._call.deployment == deployment:
            self._end_call(self._call)
        self._send(Unhosted(deployment, self._footprints(), self._resident()))

    # ---- calls

    def _ensure_resident(self, deployment: str) -> None:
        """Whoever had to leave to make room comes back, which the controller did not know of."""
        if not self.states[deployment].is_resident:
            self._switch(Switch((), deployment))

    def _begin(self, frame: RunCall) -> None:
        self._ensure_resident(frame.deployment)
        self._call, self._call_start_s = frame, time.perf_counter()
        state = self.states[frame.deployment]
        decoder = state.worker.decoders[-1]
        num_bytes = opening_bytes(frame.message, decoder.config, decoder.dtype.itemsize)
        if num_bytes and not self._fit(state, num_bytes):
            self._send(FromDeployment(frame.deployment, refusal(frame.message, num_bytes, self.memory.device_bytes)))
        else:
            state.worker.handle(frame.message)

    def _end_call(self, call: RunCall) -> None:
        self._call = None
        if call.deployment in self.states:
            self._fit(self.states[call.deployment])
        self._send(CallOver(call.call_id, time.perf_counter() - self._call_start_s, self._footprints(), self._resident()))

    # ---- the device

    def _switch(self, frame: Switch) -> None:
        offloads_s: dict[str, float] = {}
        for name in frame.park:
            if name in self.states and self.states[name].is_resident:
                offloads_s[name] = _timed(self.states[name].park)
        state = self.states.pop(frame.activate)
        self.states[frame.activate] = state
        tier = state.tier
        load_s = _timed(lambda: self._bring(state)) if not state.is_resident else 0.0
        self._send(Switched(frame.activate, tier, load_s, offloads_s, self._footprints(), self._resident()))

    def _bring(self, state: DeviceState) -> None:
        while True:
            try:
                state.unpark()
                return
            except CapacityError:
                if not self._make_room(state):
                    raise

    def _fit(self, state: DeviceState, more_bytes: int = 0) -> bool:
        """Room for what a deployment holds now and so much more."""
        while True:
            try:
                state.fit(more_bytes)
                return True
            except CapacityError:
                if not self._make_room(state):
                    return False

    def _make_room(self, needing: DeviceState) -> bool:
        """Somebody leaves the device, or versions that nobody samples, or a cache that finds no room elsewhere; False: none."""
        other = next((state for state in self._resident_states() if state is not needing), None)
        if other is None:
            return needing.drop_idle_versions() or self.memory.lose_oldest_cache()
        other.park()
        return True

    def _resident_states(self) -> list[DeviceState]:
        return [state for state in self.states.values() if state.is_resident]

    def _resident(self) -> tuple[str, ...]:
        return tuple(state.deployment for state in self._resident_states())

    def _footprints(self) -> dict[str, int]:
        return {name: state.num_bytes for name, state in self.states.items()}


def _timed(action: Callable[[], None]) -> float:
    start_s = time.perf_counter()
    action()
    return time.perf_counter() - start_s
