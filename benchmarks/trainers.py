"""Training alone: two training processes of one thread against one, on updates of several tasks.

    python -m benchmarks.trainers [--quick] [--json FILE]

SmolLM2, LoRA of rank 16 on all linear layers; six tasks with batches of different sizes, of which each sends its next update when
the last is durable, as a run's tasks do. Real worker processes, records and moves of adapters between trainers; no rollout. Both
systems are up before the clock starts, and take turns round after round; the fastest round of each counts. Every adapter must come
out the same, bit for bit. `processor share` is how much of what the trainers could have used they got: below 1 other programs ran.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.common import headline, write_json
from plait.cluster.messages import CloseTask, FromWorker, JobFailed, OpenTask, TaskOpened, Update, UpdateDone
from plait.cluster.rollout_deployment import RolloutDeployment
from plait.config.environments import CalculatorSettings
from plait.config.run import EngineSettings, ModelSettings, RunSettings, TrainingSettings, WorkerSettings
from plait.config.task import LossSettings, TaskSettings
from plait.models.catalogue import find
from plait.observe.events import EngineSample, StepCommitted
from plait.types.datum import Datum
from plait.types.errors import WorkerFailure

MODEL = "smollm2-135m-instruct"
GOAL = 1.7
SEQUENCE_TOKENS = 64
BATCHES = (8, 4, 8, 4, 8, 4)
"""Sequences in the updates of each task. Tasks are opened at the trainers in turn, so that it pays to move some."""
NUM_ROUNDS, NUM_STEPS = 2, 3


class Trainers:
    """Workers of which `num_trainers` train. A listener of their deployment too."""

    def __init__(self, num_trainers: int, batches: Sequence[int], folder: Path) -> None:
        self.num_trainers, self._batches, self._folder = num_trainers, batches, folder
        self._tasks = [TaskSettings(name=f"t{n}", environment=CalculatorSettings(), loss=LOSS) for n in range(len(batches))]
        settings = RunSettings(
            model=ModelSettings(path=MODEL, max_context_tokens=256),
            workers=WorkerSettings(train_workers=num_trainers, train_threads=1, lend_threads=False),
            engine=EngineSettings(slot_tokens=256, pool_tokens=256, max_rows=1, batch_invariant="off"),
            training=TrainingSettings(micro_batch_tokens=512), tasks=tuple(self._tasks),
        )  # fmt: skip
        self.deployment = RolloutDeployment(settings, str(find(MODEL)), len(batches), self)
        self.versions: dict[str, int] = {}
        self.digests: dict[str, str] = {}
        self.seen: set[tuple[str, str]] = set()
        """(task, trainer): where each was opened or trained."""
        self._target = 0
        self._is_done = asyncio.Event()

    async def start(self) -> None:
        await self.deployment.start()
        for task in self._tasks:
            self.deployment.train(OpenTask("ana", task.model_dump_json(), str(self._folder / task.name), 1, task.name))
        await self._is_done.wait()

    async def train(self, num_steps: int) -> tuple[float, float]:
        """So many updates of every task: wall seconds, and the trainers' share of the processors that they could have used."""
        self._is_done.clear()
        self._target += num_steps
        start_s, start_cpu_s = time.perf_counter(), self._cpu_s()
        for task in self._tasks:
            self._send(task.name)
        await self._is_done.wait()
        wall_s = time.perf_counter() - start_s
        return wall_s, (self._cpu_s() - start_cpu_s) / wall_s / self.num_trainers

    def _send(self, task: str) -> None:
        step = self.versions[task] + 1
        event = StepCommitted(
            time_s=time.time(), task=task, step=step, adapter_digest="", loss=0.0, grad_norm=0.0, learning_rate=0.0,
            num_sequences=self._batches[int(task[1:])], num_trained_tokens=self._batches[int(task[1:])] * SEQUENCE_TOKENS,
        )  # fmt: skip
        self.deployment.train(Update(task, _datums(task, step, event.num_sequences), 1e-3, step, event, time.time()))

    def _cpu_s(self) -> float:
        pids = self.deployment.workers.pids
        return sum(sum(psutil.Process(pids[name]).cpu_times()[:2]) for name in pids if name.startswith("train"))

    async def close(self) -> None:
        for task in self._tasks:
            self.deployment.train(CloseTask(task.name))
        await self.deployment.close()

    # ---- DeploymentListener

    def on_message(self, worker: str, message: FromWorker) -> None:
        match message:
            case TaskOpened(task, ref):
                self.versions[task] = ref.policy.version
                self.seen.add((task, worker))
                if len(self.versions) == len(self._tasks):
                    self._is_done.set()
            case UpdateDone(task, ref):
                self._trained(worker, task, ref.policy.version, ref.digest)
            case JobFailed(task, error):
                raise RuntimeError(f"{task} failed: {error}")

    def _trained(self, worker: str, task: str, version: int, digest: str) -> None:
        self.versions[task], self.digests[task] = version, digest
        self.seen.add((task, worker))
        if version < self._target:
            self._send(task)
        elif all(version == self._target for version in self.versions.values()):
            self._is_done.set()

    def on_engine(self, sample: EngineSample) -> None:
        """Nothing is sampled."""

    def on_worker_lost(self, worker: str, roles: Sequence[str], failure: WorkerFailure) -> None:
        raise failure

    def on_adapters_lost(self, owners: Sequence[str], num_trainers: int) -> None:
        """The loss has been told."""

    def on_reopen(self, owners: Sequence[str]) -> None:
        """There is nothing to go on with."""

    def on_trainer_ready(self) -> None:
        """As above."""

    def on_failed(self, error: Exception) -> None:
        print(error, flush=True)
        asyncio.get_running_loop().stop()


LOSS = LossSettings(kind="cross_entropy")


def _datums(task: str, step: int, num_sequences: int) -> tuple[Datum, ...]:
    first = 1000 + 97 * int(task[1:]) + 13 * step
    rows = [tuple(first + 7 * row + position for position in range(SEQUENCE_TOKENS + 1)) for row in range(num_sequences)]
    weights = (1.0 / (num_sequences * SEQUENCE_TOKENS),) * SEQUENCE_TOKENS
    return tuple(Datum(row[:-1], row[1:], weights=weights) for row in rows)


async def compare(num_rounds: int, num_steps: int, batches: Sequence[int]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as folder:
        systems = [Trainers(number, batches, Path(folder) / str(number)) for number in (1, 2)]
        rows = []
        try:
            for system in systems:
                await system.start()
                await system.train(1)  # Kernels are compiled at the first pass.
            for number in range(num_rounds):
                rows += [_row(system, number, *await system.train(num_steps), num_steps * len(batches)) for system in systems]
        finally:
            await asyncio.gather(*(system.close() for system in systems))
    if systems[0].digests != systems[1].digests:
        raise RuntimeError("the adapters differ")
    return rows


def _row(system: Trainers, number: int, wall_s: float, share: float, num_updates: int) -> dict[str, Any]:
    return {
        "trainers": system.num_trainers, "round": number, "wall_s": wall_s, "updates_per_s": num_updates / wall_s,
        "processor_share": share, "num_tasks_that_moved": len(system.seen) - len(system.digests),
    }  # fmt: skip


def headlines_of(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    best = {number: max((r for r in rows if r["trainers"] == number), key=lambda r: float(r["updates_per_s"])) for number in (1, 2)}
    shares = ", ".join(f"{number}: {best[number]['processor_share']:.2f}" for number in best)
    ratio = best[2]["updates_per_s"] / best[1]["updates_per_s"]
    return {"two_trainers_against_one": headline(ratio, GOAL, "x updates/s", f"processor share {shares}")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="four tasks, two updates of each, one round")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    arguments = parser.parse_args()
    quick: tuple[int, int, Sequence[int]] = (1, 2, BATCHES[:4])
    rows = asyncio.run(compare(*(quick if arguments.quick else (NUM_ROUNDS, NUM_STEPS, BATCHES))))
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()))
    Console().print(table)
    headlines = headlines_of(rows)
    for name, values in headlines.items():
        print(f"{name}: {values}")
    if arguments.json:
        write_json(arguments.json, rows, headlines)


if __name__ == "__main__":
    main()
