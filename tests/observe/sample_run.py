"""Writes a plausible run directory: `python -m tests.observe.sample_run FOLDER [--tasks N] [--steps N]`."""

import argparse
import math
import random
from collections.abc import Iterator
from pathlib import Path

from plait.observe import events as e
from plait.observe.log import EventLog
from plait.state.rundir import RunDirectory
from plait.state.samples import SampleRecord, write_samples
from plait.types.policy import LOCAL_TENANT, PolicyVersion
from plait.types.trajectory import Segment, Trajectory

START_S = 1_790_000_000.0
TASK_NAMES = ("gcd", "calculator", "word_sorting")
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\x1b[31m"
CONFIG = """name = "demo"
seed = 0

[model]
path = "smollm2-135m-instruct"
dtype = "bfloat16"

[workers]
layout = "split"

[[tasks]]
name = "gcd"
steps = 20
groups_per_step = 8
group_size = 8
environment = { kind = "reasoning_gym", name = "gcd", instruction = "Answer with <answer> & nothing else" }
"""


def sample_events(
    tasks: tuple[str, ...] = TASK_NAMES, num_steps: int = 20, resume_after: int | None = 12, failing: str = "", seed: int = 1
) -> Iterator[e.AnyEvent]:
    """A run whose trainer serves one task at a time; interrupted and resumed once the first task has `resume_after` steps."""
    return _SampleRun(tasks, num_steps, resume_after, failing, seed).events()


class _SampleRun:
    def __init__(self, tasks: tuple[str, ...], num_steps: int, resume_after: int | None, failing: str, seed: int) -> None:
        self.tasks, self.num_steps, self.resume_after, self.failing = tasks, num_steps, resume_after, failing
        self.random = random.Random(seed)
        self.clock_s = dict.fromkeys(tasks, START_S + 4.0)
        self.trainer_free_s = START_S
        self.rollout_free_s = START_S
        self.num_tokens = 0
        self.pending: list[e.AnyEvent] = []

    def events(self) -> Iterator[e.AnyEvent]:
        yield self._started(START_S, resumed=False)
        ended_s = START_S
        for event in self._timeline():
            ended_s = event.time_s
            yield event
        yield e.RunEnded(time_s=ended_s + 0.5, status="done")

    def _timeline(self) -> Iterator[e.AnyEvent]:
        for task in self.tasks:
            self.pending.append(e.TaskStateChanged(time_s=self.clock_s[task], task=task, state="running"))
            self._evaluate(task, 0, "before")
        for step in range(1, self.num_steps + 1):
            for task in self.tasks:
                if task == self.failing and step > 4:
                    continue
                self._step(task, step)
                if step % 5 == 0:
                    self._evaluate(task, step, "after" if step == self.num_steps else "periodic")
            if step == self.resume_after:
                self._interrupt()
        for task in self.tasks:
            state = "failed" if task == self.failing else "done"
            cause = (
                'Traceback (most recent call last):\n  File "task.py", line 7\nZeroDivisionError: <b>division</b> by zero'
                if task == self.failing
                else ""
            )
            self.pending.append(e.TaskStateChanged(time_s=self.clock_s[task] + 0.2, task=task, state=state, cause=cause))
        self.pending.sort(key=lambda event: event.time_s)
        yield from self.pending

    def _started(self, time_s: float, resumed: bool) -> e.RunStarted:
        return e.RunStarted(
            time_s=time_s, run="demo", model="SmolLM2-135M-Instruct", dtype="bfloat16", device="cpu", tasks=self.tasks,
            workers=("rollout-0", "train-0"), batch_invariant=True, plait_version="0.1.0", process_id=1, resumed=resumed,
            total_steps=dict.fromkeys(self.tasks, self.num_steps),
        )  # fmt: skip

    def _phase(self, task: str, phase: str, step: int, length_s: float, start_s: float | None = None) -> float:
        start_s = self.clock_s[task] if start_s is None else start_s
        self.pending.append(e.PhaseSpan(time_s=start_s + length_s, task=task, phase=phase, step=step, start_s=start_s))
        self.clock_s[task] = max(self.clock_s[task], start_s + length_s)
        return length_s

    def _evaluate(self, task: str, version: int, when: str) -> None:
        length_s = self._phase(task, "evaluation", version, 3.0 + self.random.random())
        accuracy = round(self._skill(task, version) * 64) / 64
        self._rollout_span(self.clock_s[task] - length_s, length_s)
        self.pending.append(
            e.EvaluationDone(time_s=self.clock_s[task], task=task, version=version, accuracy=accuracy, num_questions=64, when=when)
        )

    def _skill(self, task: str, step: int) -> float:
        index = self.tasks.index(task)
        return 0.06 + (0.85 - 0.1 * (index % 4)) / (1 + math.exp(-(step - 8 - 2 * (index % 3)) / 2.5))

    def _rollout_span(self, start_s: float, length_s: float) -> None:
        begin_s = max(start_s, self.rollout_free_s)
        while begin_s < start_s + length_s - 0.3:
            end_s = min(begin_s + 0.2 + self.random.random(), start_s + length_s)
            self.pending.append(
                e.WorkerSpan(time_s=end_s, worker="rollout-0", start_s=begin_s, num_tokens=int((end_s - begin_s) * 600))
            )
            begin_s = end_s + self.random.choice((0.01, 0.02, 0.3))
            self.rollout_free_s = end_s
            self.num_tokens += int((end_s - begin_s) * 600)
        self.pending.append(self._engine_sample(self.rollout_free_s))

    def _engine_sample(self, time_s: float) -> e.EngineSample:
        return e.EngineSample(
            time_s=time_s, engine="rollout-0", num_rows=24, num_queued=3, reserved_tokens=3000, cache_tokens=4000, num_moves=2,
            counters={
                "decoded_tokens": self.num_tokens, "computed_prompt_tokens": 100, "device_hit_tokens": 200, "host_hit_tokens": 100,
                "drafted_tokens": 40, "accepted_tokens": 30, "drafts": 10,
            },
        )  # fmt: skip

    def _step(self, task: str, step: int) -> None:
        warm = task == "calculator" and step <= 3
        rollout_s = environment_s = queued_s = None
        if not warm:
            rollout_s = self._phase(task, "rollout", step, 4 + 3 * self.random.random())
            self._rollout_span(self.clock_s[task] - rollout_s, rollout_s)
            environment_s = self._phase(
                task, "environment", step, (2.5 if task == "calculator" else 0.8) * (0.5 + self.random.random())
            )
            queued_s = max(0.0, self.trainer_free_s - self.clock_s[task])
            if queued_s > 0:
                self._phase(task, "queued", step, queued_s)
        start_s = max(self.clock_s[task], self.trainer_free_s)
        training_s = self._phase(task, "warm_start" if warm else "training", step, 1.5 + self.random.random(), start_s)
        self.trainer_free_s = start_s + training_s
        self.pending.append(e.WorkerSpan(time_s=self.trainer_free_s, worker="train-0", start_s=start_s, task=task, num_tokens=2600))
        self.pending.append(self._committed(task, step, warm, rollout_s, environment_s, queued_s, training_s))
        if task == "calculator" and step % 6 == 0:
            self._reward_error(task, step)

    def _reward_error(self, task: str, step: int) -> None:
        self.pending.append(
            e.RewardError(
                time_s=self.clock_s[task],
                task=task,
                step=step,
                example_id=f"q{step}",
                stage="turn",
                error="tool timed out after 30 s",
            )
        )

    def _committed(
        self,
        task: str,
        step: int,
        warm: bool,
        rollout_s: float | None,
        environment_s: float | None,
        queued_s: float | None,
        training_s: float,
    ) -> e.StepCommitted:
        reward = None if warm else min(1.0, max(0.0, self._skill(task, step) + self.random.gauss(0, 0.04)))
        measured: dict[str, float | int] = {} if warm else {"num_sampled_tokens": 2400, "ratio_mean": 1.0, "logprob_gap_max": 0.0}
        return e.StepCommitted(
            time_s=self.clock_s[task],
            task=task,
            step=step,
            phase="warm_start" if warm else "rl",
            adapter_digest=f"{step:064x}",
            reward_mean=reward,
            reward_std=None if reward is None else math.sqrt(reward * (1 - reward)),
            loss=self.random.gauss(0, 0.1),
            grad_norm=0.4 + self.random.random(),
            learning_rate=5e-4,
            num_sequences=64,
            num_trained_tokens=2600,
            num_groups_without_gradient=2,
            staleness_mean=None if warm else 0.0,
            rollout_s=rollout_s,
            tail_s=None if rollout_s is None else rollout_s / 4,
            environment_s=environment_s,
            queued_s=queued_s,
            training_s=training_s,
            stop_counts={} if warm else {"stop_token": 60, "length": 4},
            **measured,  # type: ignore[arg-type]
        )

    def _interrupt(self) -> None:
        """The process is killed and comes back two hours later."""
        latest_s = max(self.clock_s.values())
        self.pending.append(e.Note(time_s=latest_s, level="warning", message=f"answers were cut: {HOSTILE}", task=self.tasks[0]))
        back_s = latest_s + 7_200.0
        self.pending.append(self._started(back_s, resumed=True))
        self.pending.append(e.WorkerLost(time_s=back_s + 1, worker="train-0", cause="killed by signal 9"))
        self.clock_s = dict.fromkeys(self.tasks, back_s + 3.0)
        self.trainer_free_s = self.rollout_free_s = back_s + 3.0
        for task in self.tasks:
            self.pending.append(e.TaskStateChanged(time_s=back_s + 3.0, task=task, state="running"))


def sample_record(task: str, step: int, group: int, sample: int, reward: float, answer: str) -> SampleRecord:
    """One trajectory; two turns for the calculator."""
    policy = PolicyVersion(LOCAL_TENANT, task, step - 1)
    sampled = Segment((5, 6, 7), (-0.1, -0.5, -0.01), policy, "stop_token")
    turns = 2 if task == "calculator" else 1
    segments = (Segment((1, 2, 3)), sampled) + ((Segment((8, 9)), sampled) if turns == 2 else ())
    trajectory = Trajectory(
        task, f"q{group}", group, sample, segments, reward, "stop_token" if sample % 4 else "length", {"format": 1.0}
    )
    prompt = f"<|im_start|>user\nWhat is the greatest common divisor of {12 * (group + 1)} and {18 * (group + 1)}?<|im_end|>\n"
    answers = (f"<call>{12 + group} + 30</call>", answer) if turns == 2 else (answer,)
    feedback = (f"result: {42 + group}",) if turns == 2 else ()
    return SampleRecord(task, step, trajectory, prompt, answers, feedback)


def write_sample_run(folder: Path, tasks: tuple[str, ...] = TASK_NAMES, num_steps: int = 20, failing: str = "") -> RunDirectory:
    """A run directory with config, events and samples, but no step records."""
    folder.mkdir(parents=True, exist_ok=True)
    directory = RunDirectory(folder)
    directory.config.write_text(CONFIG)
    with EventLog(directory.events) as log:
        for event in sample_events(tasks, num_steps, resume_after=num_steps * 3 // 5, failing=failing):
            log.append(event)
    for task in tasks:
        directory.samples_folder(task).mkdir(parents=True)
        for step in (1, num_steps):
            good = step == num_steps
            texts = [
                ("The answer is 6." if good else f"I think it might be 3, or {HOSTILE}", float(good and sample % 8 != 7))
                for sample in range(8)
            ]
            records = [
                sample_record(task, step, group, sample, reward, text)
                for group in range(4)
                for sample, (text, reward) in enumerate(texts)
            ]
            write_samples(directory.samples_file(task, step), records)
        for version in (0, num_steps):
            records = [
                sample_record(task, version, q, 0, float(version > 0 and q % 4 != 3), "6" if version else "about 3")
                for q in range(8)
            ]
            write_samples(directory.evaluation_file(task, version), records)
    return directory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    names = TASK_NAMES[: arguments.tasks] + tuple(f"task-{number}" for number in range(4, arguments.tasks + 1))
    print(write_sample_run(arguments.folder, names, arguments.steps).path)


if __name__ == "__main__":
    main()
