"""The simulator reimplements no policy: it imports them, and on what a real run recorded it decides the same."""

import asyncio
import inspect
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.rollout.context_scheduler import ContextScheduler, SchedulerLimits
from plait.rollout.dispatcher import Dispatcher, Handed
from plait.rollout.request import GenerationRequest
from plait.rollout.scheduler import Scheduler
from plait.rollout.service import RolloutService
from plait.simulation import drafts, group_residency, groups, rollout, tasks, trainer
from plait.simulation.light_request import light_request
from plait.simulation.rollout import SimulatedRollout
from plait.tasks.manager import TaskManager
from plait.types.chunks import Chunk, ChunkResult
from plait.types.policy import PolicyVersion
from plait.types.sampling import SamplingParams, StopReason
from tests.rollout.fake_engine import STOP_TOKEN, FakeEngine, whole_generation
from tests.simulation.even_costs import EvenCosts
from tests.simulation.test_tasks import run, shape

ENGINES = ("e0", "e1")
CACHE_TOKENS, MAX_ROWS, CHUNK_TOKENS = 60, 4, 6
Event = tuple[Any, ...]


@pytest.mark.parametrize(
    ("module", "policies"),
    [
        (rollout, {"Dispatcher", "ConcurrencyController"}), (tasks, {"TaskManager"}), (trainer, {"TenantSlices"}),
        (drafts, {"best_plan", "TargetTime"}), (groups, {"GroupQueue", "Lookahead", "ServiceTimes"}),
        (group_residency, {"ResidencyLedger", "least_soon", "estimate_setup_s"}),
    ],
)  # fmt: skip
def test_policies_are_the_service_s_own(module: Any, policies: set[str]) -> None:
    for name in policies:
        assert not inspect.getmodule(getattr(module, name)).__name__.startswith("plait.simulation")  # type: ignore[union-attr]


class Recording(Dispatcher):
    """Tells what it decides."""

    decisions: list[Event]

    def place(self) -> Handed:
        handed = super().place()
        chunks = [
            (name, chunk.request_id, len(chunk.context_tokens), chunk.budget_tokens, chunk.stretch_tokens)
            for name, chunks in handed.chunks.items() for chunk in chunks
        ]  # fmt: skip
        if chunks or handed.end_stretches:
            self.decisions.append((*chunks, *handed.end_stretches))
        return handed


def recording(scheduler: Scheduler) -> Recording:
    dispatcher = Recording(scheduler, lambda _: MAX_ROWS)
    dispatcher.decisions = []
    return dispatcher


def real_request(number: int, group: int) -> GenerationRequest:
    policy = PolicyVersion("tenant", f"task{group % 2}", 0)
    prompt = tuple(range(group, group + 4 + group))
    params = SamplingParams(30, stop_token_ids=(STOP_TOKEN,), seed=number)
    return GenerationRequest(f"r{number}", policy.task, policy, None, prompt, params, group=f"g{group}")


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def real_run(random: Random, scheduler: Scheduler) -> tuple[list[Event], list[Event]]:
    """What happened, and what the service's dispatcher decided."""
    service = RolloutService(CHUNK_TOKENS, lambda _: MAX_ROWS, scheduler)
    service._dispatcher = dispatcher = recording(scheduler)
    engines = {name: FakeEngine() for name in ENGINES}
    for name, engine in engines.items():
        service.attach(name, engine, CACHE_TOKENS)
    jobs: dict[str, asyncio.Task[Any]] = {}
    log: list[Event] = []
    for _ in range(60):
        match random.randrange(6):
            case 0 if len(jobs) < 24:
                number = len(jobs)
                batch = [(number + i, (number + i) // 4) for i in range(random.randint(1, 4))]
                log.append(("submit", batch))
                jobs |= {f"r{n}": asyncio.create_task(service.generate(real_request(n, group))) for n, group in batch}
            case 1 if random.random() < 0.3 and any(not job.done() for job in jobs.values()):
                name = random.choice([name for name, job in jobs.items() if not job.done()])
                log.append(("cancel", name))
                jobs[name].cancel()
            case _:
                _run_some(random, engines, service, log)
        await settle()
    for job in jobs.values():
        job.cancel()
    decisions = list(dispatcher.decisions)
    await asyncio.gather(*jobs.values(), return_exceptions=True)
    return log, decisions


def _run_some(random: Random, engines: dict[str, FakeEngine], service: RolloutService, log: list[Event]) -> None:
    name = random.choice(ENGINES)
    held = list(engines[name].chunks)
    if held:
        results: list[ChunkResult] = [engines[name].run(chunk) for chunk in held[: random.randint(1, len(held))]]
        ended = [(result.request_id, len(result.tokens), result.stop != StopReason.BUDGET) for result in results]
        log.append(("ended", name, ended))
        service.on_results(results)


class Scripted:
    """An engine whose chunks end when the log says so."""

    def __init__(self) -> None:
        self.chunks: dict[str, Chunk] = {}

    def submit(self, chunks: Sequence[Chunk]) -> None:
        self.chunks |= {chunk.request_id: chunk for chunk in chunks}

    def cancel(self, request_ids: Sequence[str]) -> None:
        for request_id in request_ids:
            del self.chunks[request_id]

    def end_stretches(self) -> None:
        """The log says what they drew."""


def replay(log: list[Event], scheduler: Scheduler) -> list[Event]:
    env = simpy.Environment()
    simulated = SimulatedRollout(env, scheduler, dict.fromkeys(ENGINES, EvenCosts()), CACHE_TOKENS, MAX_ROWS, CHUNK_TOKENS)
    simulated.dispatcher = dispatcher = recording(scheduler)
    engines: dict[str, Any] = {name: Scripted() for name in ENGINES}
    simulated.engines = engines
    for name in ENGINES:
        dispatcher.attach(name, CACHE_TOKENS)

    def act(event: Event) -> None:
        match event:
            case ("submit", batch):
                for number, group in batch:
                    _submit(simulated, real_request(number, group))
            case ("cancel", name):
                simulated.cancel(name)
            case ("ended", engine, ended):
                for chunk_id, drawn, is_last in ended:
                    simulated._on_ended(engine, engines[engine].chunks.pop(chunk_id), drawn, is_last)

    def plan(number: int, event: Event) -> None:
        env.timeout(number + 1.0).callbacks.append(lambda _: act(event))

    for number, event in enumerate(log):
        plan(number, event)
    env.run()
    return dispatcher.decisions


def _submit(simulated: SimulatedRollout, wanted: GenerationRequest) -> None:
    length = len(whole_generation(wanted.context_tokens, wanted.sampling)[0])
    num_tokens = len(wanted.context_tokens)
    request = light_request(wanted.request_id, wanted.queue, wanted.policy, num_tokens, 30, wanted.group)
    simulated.submit(request, length, lambda _: None)


@settings(deadline=None, max_examples=25)
@given(st.randoms(use_true_random=False), st.booleans())
def test_on_the_log_of_a_real_run_it_places_every_chunk_as_the_service_did(random: Random, uses_context: bool) -> None:
    limits = SchedulerLimits(uses_context=uses_context)
    log, decisions = asyncio.run(real_run(random, ContextScheduler(limits=limits)))
    assert replay(log, ContextScheduler(limits=limits)) == decisions


def test_a_task_manager_of_the_service_gives_the_same_commands_for_the_same_events(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[tuple[str, tuple[Any, ...], list[Any]]] = []

    def watched(name: str) -> None:
        original = getattr(TaskManager, name)

        def call(self: TaskManager, *arguments: Any) -> Any:
            commands = original(self, *arguments)
            log.append((name, arguments, commands))
            return commands

        monkeypatch.setattr(TaskManager, name, call)

    for name in ("add", "opened", "batch_ready", "committed"):
        watched(name)
    run(shape("a"), shape("b", delay_s=7.0, max_staleness=1), shape("c", arrival_s=3.0))
    monkeypatch.undo()
    assert len(log) == 3 * (2 + 3 + 3)
    manager = TaskManager()
    assert [getattr(manager, name)(*arguments) for name, arguments, _ in log] == [commands for _, _, commands in log]
    assert manager.all_ended
