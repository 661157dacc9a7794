"""The log of a real run, with real engines and a real trainer: on its events the simulator decides what the service decided."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import simpy

from plait.observe.events import StepCommitted
from plait.observe.log import read_latest_events
from plait.rollout.context_scheduler import ContextScheduler
from plait.rollout.dispatcher import Dispatcher
from plait.simulation.caches import Caches
from plait.simulation.light_request import LightRequest, light_request
from plait.simulation.replay import Changes, replay
from plait.simulation.rollout import SimulatedRollout
from plait.simulation.run_trace import read_trace
from plait.simulation.simulate import simulate
from plait.simulation.task_shape import TaskShape
from plait.simulation.tasks import SimulatedTasks
from plait.tasks.commands import RollOut
from plait.tasks.manager import TaskManager
from plait.types.policy import LOCAL_TENANT
from tests.simulation.even_costs import EvenCosts
from tests.simulation.recorded_run import MANAGED, Event, Recorded, after, decided, record, told_as


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("recorded"))


# ---- chunks


class Scripted:
    """An engine whose chunks end when the log says so."""

    def submit(self, chunks: object) -> None: ...
    def cancel(self, request_ids: object) -> None: ...
    def end_stretches(self) -> None: ...


class Chunks:
    """A simulated rollout that is told what the service was told."""

    def __init__(self, scheduler: ContextScheduler) -> None:
        own = ContextScheduler(limits=scheduler.limits)
        self.rollout = SimulatedRollout(simpy.Environment(), own, {}, 0, 1, scheduler.chunk_tokens)
        self.rows: dict[str, int] = {}
        self.rollout.dispatcher = Dispatcher(own, self.rows.__getitem__)
        self.rollout._will_pump = True  # When, the log says.

    def tell(self, event: Event) -> None:
        match event:
            case ("attach", engine, cache_tokens):
                self.rollout.dispatcher.attach(engine, cache_tokens)
                self.rollout.engines[engine] = Scripted()  # type: ignore[assignment]
            case ("add", (request_id, queue, policy, context_tokens, most, group, limit)):
                request = light_request(request_id, queue, policy, context_tokens, most, group)
                request.max_context_tokens = limit
                self.rollout.submit(request, most, lambda _: None)
            case ("goes on" | "is over" as what, request_id, num_tokens):
                request = self.rollout._requests[request_id][0]
                drawn = num_tokens - len(request.tokens)
                self.rollout._on_ended(request.engine, request.next_chunk(1), drawn, what == "is over")
            case ("remove", request_id):
                self.rollout.cancel(request_id)

    def place(self, rows: dict[str, int]) -> Event:
        self.rows.update(rows)
        return decided(self.rollout.dispatcher.place())


def test_every_chunk_goes_where_and_as_far_as_it_did(run: Recorded) -> None:
    assert run.scheduler is not None
    chunks, num_placed = Chunks(run.scheduler), 0
    for event in run.dispatched:
        if event[0] == "place":
            assert chunks.place(event[1]) == event[2]
            num_placed += len(event[2])
        else:
            chunks.tell(event)
    assert num_placed > 3 * 8
    assert {event[0] for event in run.dispatched} >= {"attach", "add", "goes on", "is over", "remove"}
    assert not chunks.rollout.lengths


# ---- tasks


class Held:
    """Generations and updates that end when the log says so."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str], list[tuple[LightRequest, Callable[[LightRequest], None]]]] = defaultdict(list)
        self.updates: dict[str, Callable[[float], None]] = {}
        self.caches = Caches({})

    def submit(self, first: Any, *rest: Any) -> None:
        if isinstance(first, str):  # To train: name, tenant, tokens, costs, what to tell.
            self.updates[first] = rest[-1]
            return
        task, step, *_ = first.request_id.split("/")
        self.requests[task, step].append((first, rest[1]))


class ToldOpen(SimulatedTasks):
    def _open(self, task: str) -> None:
        """When, the log says."""


def shapes_of(run: Recorded) -> dict[str, TaskShape]:
    found = replay(read_trace(run.directory), Changes(model="tiny"))
    return {shape.name: msgspec.structs.replace(shape, tenant=LOCAL_TENANT) for _, shapes in found.kinds for shape in shapes}


def told(events: list[Event]) -> list[Event]:
    """Of each event the task, its step or version, the policies that drew its batch, and the commands."""
    found: list[Event] = []
    for name, arguments, commands in events:
        task = arguments[0].name if name == "add" else arguments[0]
        policies = set(arguments[2]) if name == "batch_ready" else None
        found.append((name, task, arguments[1] if name != "add" else None, policies, commands))
    return found


def test_every_task_rolls_out_and_trains_when_it_did(run: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    env, held, shapes, log = simpy.Environment(), Held(), shapes_of(run), list[Event]()
    tasks = ToldOpen(env, held, held, EvenCosts(), 0)  # type: ignore[arg-type]
    for name in MANAGED:
        after(monkeypatch, TaskManager, name, told_as(name, log))
    for name, arguments, _ in run.managed:
        match name:
            case "add":
                tasks.add(shapes[arguments[0].name])
            case "opened":
                tasks._do(tasks.manager.opened(arguments[0], 0))
            case "batch_ready":
                for request, on_done in held.requests.pop((arguments[0], str(arguments[1]))):
                    request.drew(1)
                    on_done(request)
            case "committed":
                held.updates.pop(f"{arguments[0]}/{arguments[1]}")(0.0)
        env.run()
    assert told(log) == told(run.managed)
    assert tasks.manager.all_ended
    rollouts = [command for _, _, commands in log for command in commands if isinstance(command, RollOut)]
    stale = [(command.task, command.step) for command in rollouts if command.version < command.step - 1]
    assert stale == [("b", 2), ("b", 3)], "begun before the step before it was trained"


def test_from_a_run_all_its_tokens_are_drawn_again_and_as_stale(run: Recorded) -> None:
    found = replay(read_trace(run.directory), Changes(model="tiny", devices=2))
    assert {name: shapes[0].max_staleness for name, shapes in found.kinds} == {"a": 0, "b": 1, "c": 0}
    steps = [event for event in read_latest_events(run.directory.events) if isinstance(event, StepCommitted)]
    for system in simulate(found.scenario, "run", kinds=found.kinds).systems:
        assert {work.name: work.steps for work in system.works} == {"a": 3, "b": 3, "c": 2}
        makespan_s, rate = system.figures["makespan_s"], system.figures["tokens_per_s"]
        assert makespan_s is not None
        assert rate is not None
        assert makespan_s * rate == pytest.approx(sum(step.num_sampled_tokens or 0 for step in steps))
