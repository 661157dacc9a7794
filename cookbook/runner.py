"""Run one recipe in a process of its own, watch how far it is, and judge what it left."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cookbook.outcome import done_steps, last_metrics, read_metrics
from cookbook.recipe import Recipe
from cookbook.served import Server, gently, tail
from cookbook.workspace import Workspace

POLL_S = 0.1
TIMED_OUT = 124

OnStep = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class RecipeResult:
    name: str
    exit_code: int
    seconds: float
    num_steps: int
    metrics: dict[str, float]
    problems: tuple[str, ...]
    """Empty: all is as expected."""
    log: str

    @property
    def passed(self) -> bool:
        return not self.problems


def run_recipe(recipe: Recipe, workspace: Workspace, server: Server, on_step: OnStep = lambda num_steps: None) -> RecipeResult:
    folder = workspace.log_folder(recipe.name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = workspace.folder / f"{recipe.name}.log"
    log.write_text("")
    if recipe.starts_from and not _hand_over(workspace.log_folder(recipe.starts_from), folder):
        problem = f"{recipe.starts_from}, which this one starts from, left no checkpoint"
        return RecipeResult(recipe.name, 1, 0.0, 0, {}, (problem,), str(log))
    start_s = time.monotonic()
    exit_code = 0
    if recipe.kill_at_step is not None:
        exit_code = _run(recipe, workspace, server, log, on_step, recipe.kill_at_step)
        exit_code = 0 if exit_code == -signal.SIGKILL else exit_code or 1  # One that ended by itself had nothing to resume.
    if exit_code == 0:
        exit_code = _run(recipe, workspace, server, log, on_step)
    return _judge(recipe, folder, log, exit_code, time.monotonic() - start_s)


def _hand_over(source: Path, target: Path) -> bool:
    """The last checkpoint of one recipe as that with which another begins. False: there is none."""
    file = source / "checkpoints.jsonl"
    if not file.exists():
        return False
    last = json.loads(file.read_text(encoding="utf-8").splitlines()[-1])
    record = {"name": "start", "batch": 0, "state_path": last["state_path"]}
    (target / "checkpoints.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    return True


def _run(recipe: Recipe, workspace: Workspace, server: Server, log: Path, on_step: OnStep, kill_at: int | None = None) -> int:
    with log.open("a") as output:
        process = subprocess.Popen(
            command(recipe, workspace), cwd=workspace.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env={**os.environ, **workspace.variables(server.url, server.key), **recipe.environment}, start_new_session=True,
        )  # fmt: skip
    try:
        return _watch(process, recipe, workspace.log_folder(recipe.name), on_step, kill_at)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def command(recipe: Recipe, workspace: Workspace) -> list[str]:
    """As a user would type it."""
    arguments = {**recipe.arguments, "log_path": workspace.log_folder(recipe.name)}
    if not recipe.module.endswith("_loop"):  # The two loops resume whatever lies in their folder, and take no such argument.
        arguments["behavior_if_log_dir_exists"] = "resume"
    told = [f"{key}={value}" for key, value in arguments.items()]
    return [*gently(), sys.executable, "-m", f"tinker_cookbook.recipes.{recipe.module}", *told]


def _watch(process: subprocess.Popen[bytes], recipe: Recipe, folder: Path, on_step: OnStep, kill_at: int | None) -> int:
    end_s = time.monotonic() + recipe.limit_s
    while (code := process.poll()) is None:
        num_steps = len(done_steps(read_metrics(folder / "metrics.jsonl"), recipe.step_metric))
        on_step(num_steps)
        if kill_at is not None and num_steps >= kill_at:
            os.killpg(process.pid, signal.SIGKILL)
            return process.wait()
        if time.monotonic() > end_s:
            return TIMED_OUT
        time.sleep(POLL_S)
    return code


def _judge(recipe: Recipe, folder: Path, log: Path, exit_code: int, seconds: float) -> RecipeResult:
    rows = read_metrics(folder / "metrics.jsonl")
    steps = sorted(set(done_steps(rows, recipe.step_metric)))
    problems = [] if exit_code == 0 else [f"exit code {exit_code}:\n{tail(log)}"]
    if steps != list(range(recipe.num_steps)):
        problems.append(f"steps {steps} were done, expected {recipe.num_steps}")
    problems += [problem for expectation in recipe.expectations if (problem := expectation(rows)) is not None]
    return RecipeResult(
        recipe.name, exit_code, seconds, len(steps), last_metrics(rows, recipe.shown), tuple(problems), str(log)
    )  # fmt: skip
