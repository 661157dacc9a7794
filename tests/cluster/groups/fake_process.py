"""A worker group's process without any work in it: it checks what it is told, and ends calls and chunks when it is asked to."""

from collections import defaultdict
from collections.abc import Sequence

from plait.cluster.groups.dispatcher import GroupDispatcher
from plait.cluster.groups.messages import CallOver, Host, Pass, Prefetch, Prefetched, RunCall, Switch, Switched, ToGroup, Unhost
from plait.cluster.messages import CancelRequests, ChunksDone, Configure, EndStretches, FromWorker, SubmitChunks
from plait.cluster.model_messages import PromptScored, ScorePrompt
from plait.scheduling.orders import Order
from plait.types.chunks import Chunk, ChunkResult
from plait.types.policy import PolicyVersion
from plait.types.sampling import SamplingParams, StopReason

POLICY = PolicyVersion("local", "base", 0)
SETTINGS = Configure(
    name="worker", roles=("rollout", "train"), model_path="", dtype="float32", device="cpu", threads=1, max_context_tokens=64,
    max_rows=4, slot_tokens=128, pool_tokens=128, batch_invariant="off", micro_batch_tokens=128, checkpoint_layers=False,
    num_tasks=1,
)  # fmt: skip


def chunk(request_id: str, budget_tokens: int = 8) -> Chunk:
    return Chunk(request_id, POLICY, (1, 2), budget_tokens, SamplingParams(64))


class FakeProcess:
    """With its dispatcher; each deployment takes `sizes[deployment]` bytes."""

    def __init__(self, order: Order, device_bytes: int, sizes: dict[str, int], stages: bool = True) -> None:
        """`stages`: what is to come to the device beside a call does."""
        self.stages = stages
        self.dispatcher, self.sizes, self.device_bytes = GroupDispatcher(order, device_bytes), sizes, device_bytes
        self.now_s = 0.0
        self.resident: list[str] = []
        self.running: RunCall | Host | None = None
        self.chunks: dict[str, str] = {}
        """Deployment of each that runs."""
        self.answers: dict[str, list[str]] = defaultdict(list)
        """By deployment: requests that were answered."""
        self.calls: list[RunCall] = []
        self.switches: list[Switch] = []
        self.prefetched: list[str] = []
        self.staged: list[tuple[str, tuple[str, ...]]] = []
        """What came to the device beside calls, and who left for it."""
        self.ended_stretches: list[str] = []
        for name in sizes:
            self.dispatcher.host(name, SETTINGS, self.now_s)
            self.exchange()
            self.end_call()

    # ---- the link

    def send(self, deployment: str, message: object) -> None:
        self.dispatcher.send(deployment, message, self.now_s)  # type: ignore[arg-type]
        self.exchange()

    def exchange(self) -> None:
        frames, answers = self.dispatcher.take()
        for frame in frames:
            self._take(frame)
        for deployment, answer in answers:
            self._note(deployment, answer)

    def _take(self, frame: ToGroup) -> None:
        match frame:
            case Host():
                assert self.running is None
                assert not self.chunks
                self.running = frame
                self.resident = [frame.deployment]
            case Switch(park, activate):
                self._switch(park, activate)
                self.switches.append(frame)
            case RunCall(deployment=deployment):
                assert (self.running, self.chunks) == (None, {}), "one call at a time"
                self._bring(deployment)
                self.running = frame
                self.calls.append(frame)
            case Pass(deployment, message):
                self._pass(deployment, message)
            case Prefetch(deployment, leaving):
                self.prefetched.append(deployment)
                if leaving is not None:
                    self._stage(leaving, deployment)
            case Unhost(deployment):
                self._unhost(deployment)

    def _switch(self, park: Sequence[str], activate: str) -> None:
        assert (self.running, self.chunks) == (None, {}), "nobody leaves in the midst"
        if self.stages:
            assert set(park) <= set(self.resident)
            assert activate not in self.resident
        self.resident = [name for name in self.resident if name not in (*park, activate)] + [activate]
        self._make_room(activate)
        assert sum(self.sizes[name] for name in self.resident) <= max(self.device_bytes, self.sizes[activate])
        self.dispatcher.switched(Switched(activate, "host", 0.5, dict.fromkeys(park, 0.25), self.sizes, tuple(self.resident)))

    def _stage(self, leaving: Sequence[str], deployment: str) -> None:
        """Beside what runs. What fails is heard of with the next report."""
        busy = set(self.chunks.values()) | ({self.running.deployment} if self.running is not None else set())
        assert busy, "nothing runs meanwhile"
        assert not busy & {deployment, *leaving}
        if not self.stages:
            return
        assert deployment not in self.resident
        assert set(leaving) <= set(self.resident)
        self.staged.append((deployment, tuple(leaving)))
        after = [name for name in self.resident if name not in leaving] + [deployment]
        assert sum(self.sizes[name] for name in after) <= self.device_bytes
        self.resident = after
        self.dispatcher.prefetched(Prefetched(deployment, 0.75, 0.0, self.sizes, tuple(self.resident)))

    def _make_room(self, activate: str) -> None:
        """Others leave unasked, if the controller thought that they had left."""
        while not self.stages and sum(self.sizes[name] for name in self.resident) > self.device_bytes and len(self.resident) > 1:
            self.resident.remove(next(name for name in self.resident if name != activate))

    def _bring(self, deployment: str) -> None:
        """It is on the device, unless it was to come beside a call and has not."""
        if deployment not in self.resident:
            assert not self.stages
            self._switch(self.resident[:], deployment)

    def _pass(self, deployment: str, message: object) -> None:
        match message:
            case SubmitChunks(chunks):
                assert self.running is None
                self._bring(deployment)
                assert set(self.chunks.values()) <= {deployment}, "one deployment samples at a time"
                self.chunks |= {one.request_id: deployment for one in chunks}
            case ScorePrompt(request_id):
                assert self.running is None
                self._bring(deployment)
                self.chunks[request_id] = deployment
            case EndStretches():
                self.ended_stretches.append(deployment)
            case CancelRequests(request_ids):
                for request_id in request_ids:
                    assert self.chunks.get(request_id) == deployment
                    self.end_chunk(request_id)

    def _unhost(self, deployment: str) -> None:
        self.chunks = {name: owner for name, owner in self.chunks.items() if owner != deployment}
        self.resident = [name for name in self.resident if name != deployment]
        del self.sizes[deployment]
        if self.running is not None and self.running.deployment == deployment:
            self.end_call()

    # ---- what it does

    def end_call(self, service_s: float = 1.0) -> None:
        running, self.running = self.running, None
        assert running is not None
        self.dispatcher.call_over(CallOver(running.call_id, service_s, self.sizes, tuple(self.resident)), self.now_s)
        self.exchange()

    def end_chunk(self, request_id: str, *follow: Chunk) -> None:
        """Its result; `follow` are submitted on hearing of it."""
        deployment = self.chunks.pop(request_id)
        done = ChunksDone((ChunkResult(request_id, POLICY, (3,), (-1.0,), StopReason.BUDGET),))
        self.dispatcher.heard(deployment, done, self.now_s)
        self._note(deployment, done)
        if follow:
            self.dispatcher.send(deployment, SubmitChunks(follow), self.now_s)
        self.dispatcher.settle(self.now_s)
        self.exchange()

    def _note(self, deployment: str, answer: FromWorker) -> None:
        match answer:
            case ChunksDone(results):
                self.answers[deployment] += [result.request_id for result in results]
            case PromptScored(request_id):
                self.answers[deployment].append(request_id)
