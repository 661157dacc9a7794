"""One GRPO step at a time, of Plait and of TRL: the processes stay up, and work only when a step is asked for.

- Plait is the whole product: its driver, a worker with both roles and both threads, environment process, records on disk.
- Both draw `new_tokens` tokens for every answer (stop tokens are off), pay the same reward for the same questions, and train an
  adapter of the same rank on the same modules with one AdamW step.
"""

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import msgspec
import psutil

from benchmarks.marlaas_rewards import examples
from benchmarks.marlaas_tasks import REWARDS
from plait.config.environments import FunctionSettings
from plait.config.load import effective_toml
from plait.config.run import EngineSettings, ModelSettings, RunSettings, TrainingSettings, WorkerSettings
from plait.config.task import EvaluationSettings, LoraSettings, SamplingSettings, TaskSettings
from plait.environments.pool import EnvironmentPool
from plait.models.tokenizer import Tokenizer
from plait.observe.events import AnyEvent, StepCommitted, TaskStateChanged
from plait.observe.log import EventLog
from plait.state.rundir import RunDirectory
from plait.tasks.driver import RunDriver
from plait.tasks.own_compute import OwnCompute

ROOT = Path(__file__).parent.parent
TRL_PYTHON = ROOT / ".bench-peers" / "trl" / "bin" / "python"
TRL_PROGRAM = Path(__file__).parent / "peers" / "trl_step.py"
REWARD = "vowel_share"
NUM_THREADS = 2
MICRO_BATCH_TOKENS = 4096
"""The whole step in one pass, as nobody else waits for a turn between two."""
TASK = "vowels"


class StepShape(msgspec.Struct, frozen=True):
    model_path: str
    dtype: str
    num_prompts: int = 8
    group_size: int = 8
    new_tokens: int = 32
    rank: int = 16

    @property
    def num_sampled_tokens(self) -> int:
        return self.num_prompts * self.group_size * self.new_tokens


class StepTime(msgspec.Struct, frozen=True):
    wall_s: float
    cpu_s: float
    """Of all the system's processes together."""
    parts: dict[str, float] = {}
    """Wall seconds of the parts that are told apart."""


class StepSystem(Protocol):
    name: str

    async def __aenter__(self) -> "StepSystem": ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    async def step(self) -> StepTime: ...


class EndlessTokenizer(Tokenizer):
    """Without stop tokens every answer has its full length."""

    stop_token_ids = ()


class PlaitSteps:
    name = "plait"

    def __init__(self, shape: StepShape, max_steps: int) -> None:
        self.shape = shape
        self.settings = _plait_settings(shape, max_steps)
        self._steps: asyncio.Queue[StepCommitted | str] = asyncio.Queue()
        self._folder = tempfile.TemporaryDirectory(prefix="plait-bench-")

    async def __aenter__(self) -> "PlaitSteps":
        directory = RunDirectory.create(Path(self._folder.name), self.settings.name, effective_toml(self.settings))
        self._log = EventLog(directory.events)
        self._environments = await EnvironmentPool.start({TASK: self.settings.tasks[0].environment}, 1)
        tokenizer = EndlessTokenizer.load(self.shape.model_path)
        self._compute = compute = OwnCompute(self.settings, self.shape.model_path)
        self._driver = RunDriver(self.settings, directory, compute, tokenizer, self._environments, self._log)
        self._driver.listeners.append(self._on_event)
        self._run = asyncio.create_task(self._driver.run())
        self._is_paused = False
        return self

    async def __aexit__(self, *_: Any) -> None:
        self._run.cancel()
        await asyncio.gather(self._run, return_exceptions=True)
        await self._environments.close()
        self._log.close()
        self._folder.cleanup()

    def _on_event(self, event: AnyEvent) -> None:
        if isinstance(event, StepCommitted):
            self._is_paused = True
            self._driver.pause(TASK)  # before the manager starts the next step
            self._steps.put_nowait(event)
        elif isinstance(event, TaskStateChanged) and event.state == "failed":
            self._steps.put_nowait(event.cause)

    @property
    def num_waiting_steps(self) -> int:
        """Steps that are done though nobody asked for them: none, ever."""
        return self._steps.qsize()

    async def step(self) -> StepTime:
        start_s, start_cpu_s = time.perf_counter(), self._cpu_s()
        if self._is_paused:
            self._driver.resume(TASK)
        step = await self._steps.get()
        if isinstance(step, str):
            raise RuntimeError(f"plait's task failed: {step}")
        if step.num_sampled_tokens != self.shape.num_sampled_tokens:
            raise RuntimeError(f"plait drew {step.num_sampled_tokens} tokens instead of {self.shape.num_sampled_tokens}")
        wall_s = time.perf_counter() - start_s
        training_s = step.training_s or 0.0
        return StepTime(wall_s, self._cpu_s() - start_cpu_s, {"rollout": step.rollout_s or 0.0, "training": training_s})

    def _cpu_s(self) -> float:
        """Before the workers are up, their time counts from zero: the first step is not measured."""
        me = psutil.Process()
        workers = list(self._compute.workers.pids.values())
        return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in [me.pid, *workers])


def _plait_settings(shape: StepShape, max_steps: int) -> RunSettings:
    task = TaskSettings(
        name=TASK,
        environment=FunctionSettings(function=f"{REWARDS}:{REWARD}", examples=f"{REWARDS}:examples", require_stop=False),
        steps=max_steps,
        groups_per_step=shape.num_prompts,
        group_size=shape.group_size,
        lora=LoraSettings(rank=shape.rank, alpha=2.0 * shape.rank),
        sampling=SamplingSettings(max_new_tokens=shape.new_tokens),
        evaluation=EvaluationSettings(questions=0),
    )
    return RunSettings(
        name="train-step",
        model=ModelSettings(path=shape.model_path, dtype=shape.dtype, device="cpu"),
        workers=WorkerSettings(
            layout="shared", rollout_threads=NUM_THREADS, train_threads=NUM_THREADS, environment_processes=1, max_restarts=0
        ),
        engine=EngineSettings(max_rows=shape.num_prompts * shape.group_size, adaptive_concurrency=False),
        training=TrainingSettings(micro_batch_tokens=MICRO_BATCH_TOKENS),
        tasks=(task,),
    )


class TrlSteps:
    """`autocast`: float32 weights under bf16 autocast, the other way to train in bf16."""

    def __init__(self, shape: StepShape, autocast: bool = False) -> None:
        self.name = "trl_autocast" if autocast else "trl"
        self.shape, self.autocast = shape, autocast
        self._folder = tempfile.TemporaryDirectory(prefix="plait-bench-")

    @staticmethod
    def is_installed() -> bool:
        return TRL_PYTHON.is_file()

    async def __aenter__(self) -> "TrlSteps":
        folder = Path(self._folder.name)
        prompts = folder / "prompts.json"
        prompts.write_text(json.dumps([examples(index, 0)["question"] for index in range(512)]), encoding="utf-8")
        outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._errors = (folder / "stderr.txt").open("w+", encoding="utf-8")
        self._process = await asyncio.create_subprocess_exec(
            str(TRL_PYTHON), str(TRL_PROGRAM), *self._arguments(prompts, folder / "output"),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=self._errors,
            env={**outside, "OMP_NUM_THREADS": str(NUM_THREADS)},
        )  # fmt: skip
        await self._receive()
        return self

    def _arguments(self, prompts: Path, output: Path) -> Sequence[str]:
        shape = self.shape
        values = {
            "--model": shape.model_path, "--dtype": shape.dtype, "--num-prompts": shape.num_prompts,
            "--group-size": shape.group_size, "--new-tokens": shape.new_tokens, "--rank": shape.rank,
            "--prompts": prompts, "--output-folder": output,
        }  # fmt: skip
        return [str(part) for pair in values.items() for part in pair] + (["--autocast"] if self.autocast else [])

    async def __aexit__(self, *_: Any) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        self._errors.close()
        self._folder.cleanup()

    async def step(self) -> StepTime:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        await self._process.stdin.drain()
        done = await self._receive()
        await self._receive()
        return StepTime(done["wall_s"], done["cpu_s"])

    async def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"TRL ended: {self._errors.read()[-2000:]}")
        return json.loads(line)
