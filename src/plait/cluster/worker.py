"""The program of a worker: `serve`, or `python -m plait.cluster.worker --link-fd N` as a process of its own.

A plain loop: take what the controller sent, do one piece of work of each kind that waits (decode, score, train), report. It sleeps
only when there is nothing to do, and ends when the controller is gone.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from plait.cluster.busy_meter import BusyMeter
from plait.cluster.engine_reporter import EngineReporter
from plait.cluster.executors.carrier import WorkerLink
from plait.cluster.job_queue import JobQueue
from plait.cluster.machine_checks import check_invariance, pick_device
from plait.cluster.messages import (
    ROLLOUT,
    TRAIN,
    ChunksDone,
    CloseTask,
    Configure,
    FromWorker,
    OpenTask,
    Ready,
    SetTenantWeight,
    SetThreads,
    StartFailed,
    Starting,
    ToWorker,
    Update,
    from_worker,
    to_worker,
)
from plait.cluster.model_messages import ModelMessage
from plait.cluster.model_role import ModelRole
from plait.cluster.rollout_role import RolloutHalf, RolloutMessage, RolloutRole
from plait.cluster.train_role import TrainRole
from plait.cluster.trained_weights import AdapterBase
from plait.models.decoder import Decoder
from plait.models.huge_pages import use_huge_pages
from plait.models.invariance import InvarianceReport, self_test
from plait.models.invariance_answer import answer_once, subject_of
from plait.models.weights import base_digest, load_model
from plait.training.training_pass import PassSettings
from plait.transport import ParentLink
from plait.types.errors import ConfigError, PlaitError
from plait.types.model import ModelConfig

if TYPE_CHECKING:
    from plait.cluster.ranks.leader import RankLeader

Weights = dict[str, torch.Tensor]
Load = Callable[[Path, torch.dtype, torch.device], tuple[ModelConfig, Weights]]


class Worker:
    """What a worker does, whoever drives it: `handle` takes a message, `step` does one piece of work of each kind that waits.

    `send` is told everything that the worker has to say: what it does until it is up, then Ready. `load` reads the base's weights.
    """

    def __init__(self, send: Callable[[FromWorker], None], settings: Configure, load: Load = load_model) -> None:
        self.send, self.settings = send, settings
        self.meter, self.reporter = BusyMeter(), EngineReporter()
        self.rollout: RolloutHalf | None = None
        self.train: TrainRole | None = None
        self.models: ModelRole | None = None
        self.decoders: list[Decoder] = []
        """One for each role that the worker has."""
        self.jobs = JobQueue()
        self.ranks: RankLeader | None = None
        """Of the training group that this process is the first rank of."""
        try:
            self._load(settings, load)
        except BaseException:
            self._close_ranks()
            raise

    def _load(self, settings: Configure, load: Load) -> None:
        if settings.engine_kind == "vllm" and ROLLOUT in settings.roles:
            return self._load_vllm(settings)
        start_s = time.time()
        dtype, device = getattr(torch, settings.dtype), torch.device(pick_device(settings.device))
        self.send(Starting("loading the model"))
        if TRAIN in settings.roles and settings.train_ranks > 1:
            from plait.cluster.ranks.leader import RankLeader  # FSDP takes a second to load, and most workers need none.

            self.ranks = RankLeader(settings, device.type)
        config, weights = load(Path(settings.model_path), dtype, device)
        self.base_digest = digest = base_digest(weights)
        report = check_invariance(settings.batch_invariant, lambda: self._tested(config, weights))
        self.send(Starting("laying the weights out"))
        if ROLLOUT in settings.roles:
            self.decoders.append(Decoder(config, weights, prepack=True))
            self.rollout = RolloutRole(settings, self.decoders[-1], digest, report.granted)
        if TRAIN in settings.roles:
            passes = PassSettings(settings.micro_batch_tokens, settings.checkpoint_layers)
            self.decoders.append(Decoder(config, weights))
            full = self.ranks.join(self.decoders[-1]) if self.ranks is not None else None
            base = AdapterBase(self.decoders[-1], digest, settings.model_path, passes, full)
            self.train, self.models = TrainRole(base, self.jobs), ModelRole(base, self.jobs)
        use_huge_pages()
        self.send(Starting(""))
        self.send(Ready(digest, report.granted, report.detail, str(device), time.time() - start_s))

    def _tested(self, config: ModelConfig, weights: Weights) -> InvarianceReport:
        self.send(Starting("testing batch invariance"))
        if not self.settings.answers_folder:
            return self_test(config, weights)
        subject = subject_of(config, self.base_digest, self.settings.dtype)
        return answer_once(Path(self.settings.answers_folder), subject, lambda: self_test(config, weights))

    def _load_vllm(self, settings: Configure) -> None:
        from plait.cluster.vllm_role import VllmRole, folder_digest

        start_s, device = time.time(), pick_device(settings.device)
        self.send(Starting("starting vLLM"))
        self.rollout = VllmRole(settings, device)
        self.send(Starting(""))
        digest = folder_digest(Path(settings.model_path))
        self.send(Ready(digest, False, "vLLM is not batch-invariant", device, time.time() - start_s))

    def run(self, link: WorkerLink) -> None:
        while True:
            self._take_messages(link)
            self.step()

    def step(self) -> None:
        if self.rollout is not None and self.rollout.has_chunks:
            self._roll(self.rollout)
        if self.rollout is not None and self.rollout.has_prompts:
            self._score(self.rollout)
        if self.jobs.has_work:
            self._train()

    @property
    def has_work(self) -> bool:
        return self.jobs.has_work or (self.rollout is not None and self.rollout.has_work)

    def _take_messages(self, link: WorkerLink) -> None:
        """Handle all that has arrived; wait for something if there is nothing else to do."""
        if not self.has_work:
            self.go_idle()
        frame = link.receive(0.0 if self.has_work else None)
        while frame is not None:
            self.handle(to_worker.decode(frame))
            frame = link.receive(0.0)

    def go_idle(self) -> None:
        """Report what has not been reported yet: nothing more is to be done for now."""
        self._send_all(self.meter.flush())
        if self.rollout is not None and self.reporter.goes_idle():
            self.send(self.rollout.stats(time.time()))

    @property
    def num_adapter_loads(self) -> int:
        """Of rollouts, so far: the device holds more after each."""
        return self.rollout.engine.adapters.num_loads if isinstance(self.rollout, RolloutRole) else 0

    def close(self) -> None:
        """Let go of the folders of open tasks and models, and of cache that others share; the worker does nothing more."""
        if isinstance(self.rollout, RolloutRole):
            self.rollout.close()
        for task in self.train.tasks.values() if self.train is not None else ():
            task.adapter.close()
        for model in self.models.models.values() if self.models is not None else ():
            model.adapter.close()
        self._close_ranks()

    def _close_ranks(self) -> None:
        if self.ranks is not None:
            self.ranks.close()

    def handle(self, message: ToWorker) -> None:
        match message:
            case _ if isinstance(message, RolloutMessage) and self.rollout is not None:
                self._send_all(self.rollout.handle(message))
            case OpenTask() | Update() | CloseTask() if self.train is not None:
                self._send_all(self.train.handle(message))
            case _ if isinstance(message, ModelMessage) and self.models is not None:
                self._send_all(self.models.handle(message))
            case SetTenantWeight(tenant, weight):
                self.jobs.set_weight(tenant, weight)
            case SetThreads(threads):
                torch.set_num_threads(threads)
            case _:
                raise ConfigError(f"worker without the role for {type(message).__name__}.", "Send it to another worker.")

    def _roll(self, rollout: RolloutHalf) -> None:
        start_s = time.time()
        results, num_tokens, num_rows = rollout.work()
        if results:
            self.send(ChunksDone(tuple(results), rollout.news()))
        self._send_all(rollout.drawn())
        now_s = time.time()
        self._send_all(self.meter.add(start_s, now_s, num_tokens, num_rows=num_rows))
        if self.reporter.worked(now_s):
            self.send(rollout.stats(now_s))

    def _score(self, rollout: RolloutHalf) -> None:
        start_s = time.time()
        self._send_all(rollout.score())
        self._send_all(self.meter.add(start_s, time.time(), 0))

    def _train(self) -> None:
        start_s = time.time()
        owner, progress = self.jobs.work()
        self._send_all(self.meter.add(start_s, time.time(), progress.num_tokens, owner))
        self._send_all(progress.replies)

    def _send_all(self, messages: Sequence[FromWorker]) -> None:
        for message in messages:
            self.send(message)


def serve(link: WorkerLink) -> None:
    """Until the controller is gone, or as soon as settings and machine do not fit."""
    frame = link.receive()
    assert frame is not None
    settings = to_worker.decode(frame)
    assert isinstance(settings, Configure)
    torch.set_num_threads(settings.threads)
    torch.manual_seed(0)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        worker = Worker(lambda message: link.send(from_worker.encode(message)), settings)
    except PlaitError as error:
        link.send(from_worker.encode(StartFailed(error.message, error.remedy)))
        return
    try:
        worker.run(link)
    except EOFError:
        return  # the controller is gone; every finished step is durable
    finally:
        worker.close()


def main() -> None:
    serve(ParentLink.from_arguments())


if __name__ == "__main__":
    main()
