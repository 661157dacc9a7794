"""Decides what a worker group's process does next. Pure: messages in, frames and answers out, clock passed in.

- One function call at a time, in the order of the group's queue; calls of one task or model keep theirs.
- A turn of sampling takes all chunks of its deployment, and those that follow. At the boundaries of chunks it ends as soon as the
  order would rather have somebody else's call: what is handed over then runs to its budget, and no more is.
- A call's deployment is brought onto the device before it, unless it is there (`lookahead`: ahead of its turn).
- What is not sent when the process is lost is forgotten with it, as by a worker of its own.
"""

from collections.abc import Sequence
from itertools import count

from plait.cluster.groups.function_calls import HOST, SAMPLE, CallKind, call_kind, closed_stream, sampled_tokens
from plait.cluster.groups.group_demand import GroupDemand
from plait.cluster.groups.lookahead import Lookahead
from plait.cluster.groups.messages import CallOver, Host, Pass, Prefetched, RunCall, Switch, Switched, ToGroup, Unhost
from plait.cluster.groups.resident_set import ResidentSet
from plait.cluster.groups.sample_turn import SampleWork
from plait.cluster.messages import CancelRequests, Configure, EndStretches, FromWorker, SetThreads, SubmitChunks, ToWorker
from plait.cluster.model_messages import ScorePrompt
from plait.observe.group_counters import GroupCounters
from plait.scheduling.function_call import FunctionCall
from plait.scheduling.group_queue import GroupQueue
from plait.scheduling.orders import Order
from plait.scheduling.service_times import ServiceTimes
from plait.scheduling.setup_times import SetupTimes


class GroupDispatcher:
    """`take` gives what is to be sent, and what is to be answered here, since the last time."""

    def __init__(self, order: Order, device_bytes: int, demand: GroupDemand | None = None) -> None:
        self.demand = demand or GroupDemand()
        self.services, self.setups, self.counters = ServiceTimes(), SetupTimes(), GroupCounters()
        self._order, self._device_bytes = order, device_bytes
        self._numbers = count()
        self._frames: list[ToGroup] = []
        self._answers: list[tuple[str, FromWorker]] = []
        self.lose_all()

    def lose_all(self) -> None:
        """The process is gone, and what it had. What was learnt of times is kept."""
        self.residents = ResidentSet(self._device_bytes, self.setups)
        self.queue = GroupQueue(self._order, self.services, self.residents)
        self._waiting: dict[str, tuple[FunctionCall, ToWorker | Configure | None]] = {}
        """Calls that wait and what they say; None of turns of sampling."""
        self._samples: dict[str, SampleWork] = {}
        self._next_turns: dict[str, str] = {}
        """Call that stands for what each deployment holds to sample."""
        self._is_closing = False
        """The turn that runs takes no more."""
        self._may_stretch = False
        """Chunks of the turn that runs may go on past their budgets."""
        self._lookahead = Lookahead(self.queue, self.residents)
        self._frames.clear()
        self._answers.clear()
        self.demand.lost()

    def take(self) -> tuple[list[ToGroup], list[tuple[str, FromWorker]]]:
        frames, answers = self._frames[:], self._answers[:]
        self._frames.clear()
        self._answers.clear()
        return frames, answers

    # ---- what controllers say

    def host(self, deployment: str, settings: Configure, now_s: float) -> None:
        self._samples[deployment] = SampleWork()
        self._add_call(deployment, CallKind(HOST, ""), settings, now_s)
        self._go_on(now_s)

    def unhost(self, deployment: str, now_s: float) -> None:
        """Its calls that wait are dropped; one that runs is over when the process says so."""
        self._drop_calls(deployment, None)
        self._samples.pop(deployment, None)
        self._next_turns.pop(deployment, None)
        running = self.queue.running
        if running is not None and running.deployment == deployment and running.function == SAMPLE:
            self._end_call(running.call_id, None, now_s)
        self.residents.forget(deployment)
        self._frames.append(Unhost(deployment))
        self._go_on(now_s)

    def is_idle(self, deployment: str) -> bool:
        """Nothing of it waits or runs."""
        running, work = self.queue.running, self._samples.get(deployment)
        is_running = running is not None and running.deployment == deployment
        has_samples = work is not None and (work.has_held or work.has_running)
        return not (is_running or has_samples or self.queue.waiting(deployment).num_calls)

    def wind_down(self, deployment: str) -> None:
        """Nothing more will be sent: chunks that run keep to their budgets. Who only trains would not know what is meant."""
        if self._samples[deployment].has_running:
            self._frames.append(Pass(deployment, EndStretches()))

    def send(self, deployment: str, message: ToWorker, now_s: float) -> None:
        match message:
            case SubmitChunks() | ScorePrompt():
                self._sample(deployment, message, now_s)
            case CancelRequests(request_ids):
                self._cancel(deployment, request_ids)
            case SetThreads():
                pass  # All deployments share the group's threads.
            case _:
                self._call_or_pass(deployment, message, now_s)
        self._go_on(now_s)

    def _call_or_pass(self, deployment: str, message: ToWorker, now_s: float) -> None:
        kind, closed = call_kind(message), closed_stream(message)
        if kind is not None:
            self._add_call(deployment, kind, message, now_s)
            return
        if closed is not None:
            self._drop_calls(deployment, closed)
        self._frames.append(Pass(deployment, message))

    # ---- sampling

    def _sample(self, deployment: str, message: SubmitChunks | ScorePrompt, now_s: float) -> None:
        self._samples[deployment].hold(message)
        if deployment not in self._next_turns:
            kind = CallKind(SAMPLE, f"{SAMPLE} {next(self._numbers)}", sampled_tokens(message))
            self._next_turns[deployment] = self._add_call(deployment, kind, None, now_s)
        running = self.queue.running
        if running is not None and running.function == SAMPLE and running.deployment == deployment and not self._is_closing:
            self._go_on_or_close(deployment, now_s)

    def _go_on_or_close(self, deployment: str, now_s: float) -> None:
        """At the boundary of a chunk: the turn takes what is held, unless another call is to run first."""
        preferred, following = self.queue.peek(now_s), self._next_turns[deployment]
        if preferred is not None and preferred.call_id != following:
            self._is_closing = True
            return
        self._drop_call(following)
        self._hand_over(deployment, now_s)

    def _hand_over(self, deployment: str, now_s: float) -> None:
        self._next_turns.pop(deployment, None)
        self._frames += [Pass(deployment, message) for message in self._samples[deployment].hand_over(now_s)]
        self._may_stretch = True

    def _cancel(self, deployment: str, request_ids: Sequence[str]) -> None:
        work = self._samples[deployment]
        answers, running = work.cancel(request_ids)
        self._answers += [(deployment, answer) for answer in answers]
        if running:
            self._frames.append(Pass(deployment, CancelRequests(running)))
        if not work.has_held and deployment in self._next_turns:
            self._drop_call(self._next_turns.pop(deployment))

    # ---- what the process says

    def heard(self, deployment: str, message: FromWorker, now_s: float) -> None:
        """Before the message is passed on; `settle` after it."""
        if deployment in self._samples:
            self._samples[deployment].answered(message, now_s)

    def settle(self, now_s: float) -> None:
        """What the last answer has led to was sent: the turn may be over."""
        running = self.queue.running
        if running is None or running.function != SAMPLE:
            return
        work = self._samples[running.deployment]
        if not work.has_running:
            self._end_call(running.call_id, work.mean_s(), now_s)
            self._go_on(now_s)

    def call_over(self, over: CallOver, now_s: float) -> None:
        self.residents.report(over.footprints, over.resident)
        running = self.queue.running
        if running is not None and running.call_id == over.call_id:
            is_host = running.function == HOST
            self._end_call(over.call_id, None if is_host else over.service_s, now_s)
        self._go_on(now_s)

    def switched(self, switch: Switched) -> None:
        self.residents.report(switch.footprints, switch.resident, is_switch=True)
        self.setups.observe_load(switch.activated, switch.tier, switch.load_s)
        self.residents.found_in(switch.activated, switch.tier)
        for name, seconds in switch.offloads_s.items():
            self.setups.observe_offload(name, seconds)
        setup_s = switch.load_s + sum(switch.offloads_s.values())
        self.counters.switched(setup_s)
        self.demand.set_up(setup_s)

    def prefetched(self, prefetch: Prefetched) -> None:
        self.residents.report(prefetch.footprints, prefetch.resident)
        if prefetch.deployment in prefetch.resident:
            self.counters.prefetched(prefetch.spent_s, prefetch.waited_s)

    # ---- calls

    def _add_call(self, deployment: str, kind: CallKind, message: ToWorker | Configure | None, now_s: float) -> str:
        call_id = f"{deployment} {kind.function} {next(self._numbers)}"
        call = FunctionCall(call_id, deployment, kind.function, kind.stream, kind.size_tokens, now_s)
        self._waiting[call_id] = call, message
        self.queue.add(call)
        self.demand.arrived(call)
        return call_id

    def _drop_calls(self, deployment: str, stream: str | None) -> None:
        """Of a task or model; None: all."""
        for call, _ in list(self._waiting.values()):
            if call.deployment == deployment and stream in (None, call.stream):
                self._drop_call(call.call_id)

    def _drop_call(self, call_id: str) -> None:
        self.queue.remove(call_id)
        self.demand.withdrawn(self._waiting.pop(call_id)[0])

    def _end_call(self, call_id: str, service_s: float | None, now_s: float) -> None:
        self._is_closing = False
        self.counters.ended(service_s)
        running = self.queue.running
        self.demand.ended(self.residents.sizes.get(running.deployment, 0) if running else 0, now_s)
        self.queue.done(call_id, service_s, now_s)

    def _go_on(self, now_s: float) -> None:
        self.demand.account(now_s)
        call = self.queue.next(now_s)
        if call is not None:
            self._start(call, now_s)
        self._end_stretches()
        self._frames += self._lookahead.frames(now_s)

    def _end_stretches(self) -> None:
        """Somebody waits: the turn that runs keeps to the boundaries of its chunks."""
        running = self.queue.running
        if running is not None and running.function == SAMPLE and self._may_stretch and len(self.queue):
            self._may_stretch = False
            self._frames.append(Pass(running.deployment, EndStretches()))

    def _start(self, call: FunctionCall, now_s: float) -> None:
        self.counters.started(now_s - call.arrival_s)
        self.demand.started(call, now_s)
        _, message = self._waiting.pop(call.call_id)
        if isinstance(message, Configure):
            self._frames.append(Host(call.call_id, call.deployment, message))
            return
        leaving = self.residents.use(call.deployment)
        if leaving is not None:
            self._frames.append(Switch(leaving, call.deployment))
        if message is None:
            self._hand_over(call.deployment, now_s)
        else:
            self._frames.append(RunCall(call.call_id, call.deployment, message))
