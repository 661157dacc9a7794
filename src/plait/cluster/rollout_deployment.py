"""The workers of a run or a service, with the rollouts over all of their engines. Torch-free.

- Every worker with the role has an engine, which goes by the worker's name. When it is lost, what ran there goes on at the others,
  or at its replacement.
- How many generations each decodes at once is found by its own measured throughput.
- The listener hears of everything else that workers report and of what becomes of them, in the event loop.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec

from plait.cluster.chunk_scheduler import make_scheduler
from plait.cluster.configurations import ComputeSettings, configurations
from plait.cluster.controller_folder import controller_folder
from plait.cluster.deployment_listener import DeploymentListener
from plait.cluster.engine_sampler import EngineSampler
from plait.cluster.executors.choice import make_executor
from plait.cluster.kv_tiers import make_tiers, with_tiers
from plait.cluster.length_keeper import LengthKeeper, lengths_file
from plait.cluster.messages import ROLLOUT, TRAIN, Busy, ChunksDone, EngineStats, FromWorker, Ready, Starting, TokensDrawn
from plait.cluster.model_messages import DiscardGradients, PromptScored
from plait.cluster.oversize import refused
from plait.cluster.prompt_scoring import PromptScoring
from plait.cluster.sibling_tokens import SiblingTokens
from plait.cluster.trainer_messages import ToTrainer, Work, owner_of
from plait.cluster.trainer_router import TrainerRouter
from plait.cluster.workers import MakeWorkers, WorkerEngine, Workers
from plait.kv.block_log import BlockNews
from plait.observe.events import EngineSample
from plait.rollout.concurrency import ConcurrencyController
from plait.rollout.length_estimates import LengthHistory
from plait.rollout.prefix_routing import prefix_router, root_of
from plait.rollout.scheduler import Scheduler
from plait.rollout.service import RolloutService
from plait.types.errors import WorkerFailure


class RolloutDeployment:
    """`scheduler` decides whose chunk goes next and where, by what it learns in `history`; None: as the settings say.

    The cache's disk tier, if there is one, lies in `kv_folder`, in the folder of all that workers read and write; beside it is what
    was learnt of lengths.
    `make_workers` None: workers of its own, where `workers.executor` says.
    """

    siblings: SiblingTokens | None = None
    """None without drafting."""

    def __init__(
        self,
        settings: ComputeSettings,
        model_path: str,
        num_tasks: int,
        listener: DeploymentListener,
        scheduler: Scheduler | None = None,
        kv_folder: Path | None = None,
        make_workers: MakeWorkers | None = None,
        history: LengthHistory | None = None,
    ) -> None:
        self._engine, self._listener = settings.engine, listener
        if scheduler is None:
            scheduler = own = make_scheduler(settings)
            history = own.history
        self._router, self._dtype = prefix_router(scheduler), settings.model.dtype
        configured = configurations(settings, model_path, num_tasks)
        if self._router is not None:
            configured = [msgspec.structs.replace(one, tells_blocks=True) for one in configured]
        if kv_folder is not None:
            answers_folder = controller_folder(kv_folder.parent)
            configured = [msgspec.structs.replace(one, answers_folder=answers_folder) for one in configured]
        self._tiers = make_tiers(settings, model_path, configured, kv_folder)
        if self._tiers is not None:
            configured = [with_tiers(one, self._tiers) for one in configured]
        if make_workers is None:
            executor = make_executor(settings.workers, configured, kv_folder.parent if kv_folder else None)
            make_workers = partial(Workers, executor=executor)
        self.workers = make_workers(
            configured, settings.workers.max_restarts,
            self._on_message, self._on_lost, self._on_ready, self._on_failed,
        )  # fmt: skip
        max_rows = settings.engine.max_rows
        self.concurrency = {name: ConcurrencyController(max_rows, max_rows // 2) for name in self.workers.engine_names}
        self.lengths = LengthKeeper(lengths_file(kv_folder), history) if kv_folder and history is not None else None
        self.rollout = RolloutService(settings.engine.chunk_tokens, self._max_rows, scheduler, settings.model.max_context_tokens)
        if settings.engine.drafting != "off":
            self.siblings = self.rollout.siblings = SiblingTokens(self.workers.engine_names, self.workers.send_to)
        self.scoring = PromptScoring(self.workers.send_to)
        self.trainers = TrainerRouter(
            [one.name for one in configured if TRAIN in one.roles], self.workers.send_to,
            self._on_adapters_lost, listener.on_reopen, lambda is_idle: self.workers.lend_threads(trainer_is_idle=is_idle),
        )  # fmt: skip
        self._sampler = EngineSampler()
        self._held: list[ToTrainer] | None = None
        """While the workers move: what is to be sent to trainers after it."""
        self.workers.on_move = self

    def train(self, message: ToTrainer) -> None:
        """To the trainer that has the adapter, or is to have it. A batch that is too long for a message fails."""
        if (answer := refused(message)) is not None:
            # Not at once: who is to be answered is in the midst of sending.
            asyncio.get_running_loop().call_soon(self._answer, answer)
        elif self._held is not None:
            self._held.append(message)
        else:
            self.trainers.send(message)

    def _answer(self, message: FromWorker) -> None:
        try:
            self._listener.on_message("", message)
        except Exception as error:  # As of a message that came from a worker.
            self._on_failed(error)

    def _max_rows(self, engine: str) -> int:
        return self.concurrency[engine].limit if self._engine.adaptive_concurrency else self._engine.max_rows

    @property
    def engine_samples(self) -> list[EngineSample]:
        """The latest of each engine."""
        return list(self._sampler.latest.values())

    async def start(self) -> Ready:
        if self.lengths is not None:
            self.lengths.load()
        ready = await self.workers.start()
        if self._router is not None:
            self._router.root_of = partial(root_of, ready.base_digest, self._dtype)
        for name in self.workers.engine_names:
            self._attach(name)
        self.workers.lend_threads(trainer_is_idle=True)
        return ready

    async def close(self) -> None:
        """No worker is left, whatever else fails."""
        async with AsyncExitStack() as stack:
            if self._tiers is not None:
                stack.callback(self._tiers.close)
            stack.push_async_callback(self.workers.close)
            if self.lengths is not None:
                stack.push_async_callback(self.lengths.close)
            for sample in self._sampler.flush():
                self._listener.on_engine(sample)

    def _attach(self, engine: str) -> None:
        self.rollout.attach(engine, WorkerEngine(self.workers, engine), self._engine.capacity_tokens)
        self.scoring.attach(engine)

    def _detach(self, engine: str) -> None:
        self.rollout.detach(engine)
        self.scoring.detach(engine)
        if self.siblings is not None:
            self.siblings.lost(engine)

    # ---- moves to another worker group

    def move_begins(self) -> None:
        self._held = []

    def move_ends(self, has_moved: bool, is_up: bool) -> None:
        """Chunks that were not sent meanwhile are placed again. Work for what was lost is sent again by who hears of the loss."""
        held, self._held = self._held or [], None
        lost: Sequence[str] = ()
        if is_up:
            for engine in self.workers.moving_engines:
                self._detach(engine)
                self._attach(engine)
        if is_up and has_moved:
            lost = self.trainers.relocated(next(iter(self.trainers.placement.trainers)))
            self._listener.on_trainer_ready()
        for message in held:
            if not isinstance(message, Work | DiscardGradients) or (is_up and owner_of(message) not in lost):
                self.trainers.send(message)

    # ---- what comes back

    def _on_message(self, worker: str, message: FromWorker) -> None:
        match message:
            case ChunksDone(results, news):
                self._heard(worker, news)
                self.rollout.on_results(results)
                if self.lengths is not None:
                    self.lengths.changed()
            case PromptScored():
                self.scoring.on_scored(message)
            case EngineStats():
                self._on_stats(worker, message)
            case TokensDrawn(increments) if self.siblings is not None:
                self.siblings.drawn(worker, increments)
            case Busy():
                self._on_busy(worker, message)
            case Starting():
                self._listener.on_message(worker, message)
            case _ if (told := self.trainers.heard(worker, message)) is not None:
                self._listener.on_message(worker, told)

    def _on_busy(self, worker: str, busy: Busy) -> None:
        if busy.num_rows:
            self.concurrency[worker].observe(busy.num_tokens, busy.end_s - busy.start_s, busy.num_rows)
            self.rollout.pump()
        self._listener.on_message(worker, busy)

    def _on_stats(self, worker: str, stats: EngineStats) -> None:
        self._heard(worker, stats.news)
        state = next(state for state in self.rollout.engines if state.name == worker)
        sample = EngineSample(
            time_s=stats.time_s, engine=worker, num_rows=stats.num_rows, num_waiting=stats.num_waiting,
            num_queued=self.rollout.scheduler.num_waiting, reserved_tokens=state.reserved_tokens,
            cache_tokens=state.cache_tokens, num_moves=self.rollout.num_moves[worker], counters=stats.counters,
        )  # fmt: skip
        told = self._sampler.take(sample)
        if told is not None:
            self._listener.on_engine(told)

    def _heard(self, engine: str, news: Sequence[BlockNews]) -> None:
        if self._router is not None:
            self._router.holdings.heard(engine, news)

    def _on_lost(self, worker: str, roles: Sequence[str], failure: WorkerFailure) -> None:
        self._listener.on_worker_lost(worker, roles, failure)
        if ROLLOUT in roles:
            self._detach(worker)
        if TRAIN in roles:
            self.trainers.down(worker)

    def _on_adapters_lost(self, owners: Sequence[str]) -> None:
        self._listener.on_adapters_lost(owners, len(self.trainers.placement.trainers))

    def _on_ready(self, worker: str, roles: Sequence[str]) -> None:
        if ROLLOUT in roles:
            self._attach(worker)
        if TRAIN in roles:
            self.trainers.up(worker)
            self._listener.on_trainer_ready()

    def _on_failed(self, error: Exception) -> None:
        try:
            self._listener.on_failed(error)
        finally:  # Nobody is kept waiting for what will not come.
            self.rollout.fail_all(error)
            self.scoring.fail_all(error)
