"""The comparison of many tasks: policies, figures, and that no company changes a task's adapter."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.marlaas_calibration import lone_utilisation, unit_wait_s, with_unit_delay
from benchmarks.marlaas_digests import compare, merge
from benchmarks.marlaas_measures import digests_of, measure
from benchmarks.marlaas_policies import AfterWarmUp, ExclusiveBuffer, OneAtATime, PolicedManager, Policy, Rounds
from benchmarks.marlaas_run import RunResult, run_settings, run_system
from benchmarks.marlaas_systems import PLAIT, SYNCHRONOUS, SYSTEMS, WITHOUT_MULTI_LORA
from benchmarks.marlaas_tasks import SMOLLM2_KINDS, TINY_KINDS, make_tasks
from plait.config.run import RunSettings
from plait.models.tiny import make_tiny_model
from plait.observe.events import StepCommitted, TaskStateChanged, WorkerSpan
from plait.rollout.request import GenerationRequest
from plait.tasks.commands import Command, OpenTask, RollOut, StopTask, Train
from plait.tasks.plan import TaskPlan
from plait.types.policy import LOCAL_TENANT, PolicyVersion
from plait.types.sampling import SamplingParams

# ---- policies


def plan(name: str, steps: int = 2) -> TaskPlan:
    return TaskPlan(tenant=LOCAL_TENANT, name=name, warm_steps=0, rl_steps=steps, has_evaluation=False)


class Script:
    """Plays the driver: carries out every command at once, or keeps those of a kind until `let_go`."""

    def __init__(self, policy: Policy, names: Sequence[str], steps: int = 2) -> None:
        self.manager = PolicedManager(policy)
        self.log: list[str] = []
        self.pending: list[Command] = []
        for name in names:
            self.take(self.manager.add(plan(name, steps)))

    def take(self, commands: Sequence[Command]) -> None:
        for command in commands:
            self.log.append(f"{type(command).__name__} {command.task}")
            self.pending.append(command)

    def finish(self, command: Command) -> None:
        self.pending.remove(command)
        match command:
            case OpenTask(task):
                self.take(self.manager.opened(task, 0))
            case RollOut(task, step, version):
                self.take(self.manager.batch_ready(task, step, [PolicyVersion(LOCAL_TENANT, task, version)]))
            case Train(task, step):
                self.take(self.manager.committed(task, step))

    def run(self) -> list[str]:
        while self.pending:
            self.finish(self.pending[0])
        return self.log


def test_one_at_a_time_opens_the_next_task_when_the_one_before_has_ended() -> None:
    script = Script(OneAtATime(), ["a", "b"], steps=1)
    assert script.run() == [
        "OpenTask a", "RollOut a", "Train a", "StopTask a",
        "OpenTask b", "RollOut b", "Train b", "StopTask b",
    ]  # fmt: skip


def test_rounds_train_when_all_have_rolled_out_and_roll_out_when_all_have_trained() -> None:
    script = Script(Rounds(), ["a", "b", "c"])
    kinds = [line.split()[0] for line in script.run()]
    assert kinds == ["OpenTask"] * 3 + (["RollOut"] * 3 + ["Train"] * 3) + (["RollOut"] * 3 + ["Train"] * 3) + ["StopTask"] * 3
    assert script.manager.all_ended


def test_rounds_go_on_without_a_task_that_fails() -> None:
    script = Script(Rounds(), ["a", "b"])
    while not any(isinstance(command, RollOut) for command in script.pending):
        script.finish(script.pending[0])
    script.finish(next(command for command in script.pending if command.task == "a"))
    assert not any(isinstance(command, Train) for command in script.pending)
    script.pending = [command for command in script.pending if command.task != "b"]
    script.take(script.manager.failed("b", "broken"))
    assert [type(command) for command in script.pending] == [StopTask, Train]
    script.run()
    assert script.log.count("Train a") == 2
    assert script.manager.all_ended


def test_many_tasks_in_rounds_are_more_than_the_trainer_takes_at_once() -> None:
    script = Script(Rounds(), [f"task-{index}" for index in range(20)], steps=3)
    assert script.run().count("Train task-19") == 3


def test_nothing_starts_before_the_warm_up_has_ended() -> None:
    script = Script(AfterWarmUp("warm", Rounds()), ["warm", "a", "b"], steps=1)
    log = script.run()
    assert all(line.endswith("warm") for line in log[: log.index("StopTask warm") + 1])
    assert log[log.index("StopTask warm") + 1 :] == [
        "OpenTask a", "OpenTask b", "RollOut a", "RollOut b", "Train a", "Train b", "StopTask a", "StopTask b",
    ]  # fmt: skip


def request(task: str, number: int) -> GenerationRequest:
    policy = PolicyVersion(LOCAL_TENANT, task, 0)
    return GenerationRequest(f"{task}/{number}", task, policy, None, (1, 2), SamplingParams(max_new_tokens=4))


def test_exclusive_buffer_gives_one_tasks_requests_at_a_time() -> None:
    buffer = ExclusiveBuffer()
    for number in range(2):
        buffer.add(request("a", number))
        buffer.add(request("b", number))
    first, second = buffer.take(), buffer.take()
    assert first is not None
    assert second is not None
    assert first.policy.task == second.policy.task == "a"
    assert buffer.take() is None
    buffer.finish(first.request_id)
    assert buffer.take() is None
    buffer.requeue(second.request_id)
    third = buffer.take()
    assert third is not None
    assert third.policy.task == "b"
    assert (buffer.num_running, buffer.num_waiting, len(list(buffer))) == (1, 2, 3)
    assert buffer.remove(third.request_id)
    assert buffer.running(third.request_id) is None


# ---- figures


def made_up_result() -> RunResult:
    def step(task: str, number: int, time_s: float) -> StepCommitted:
        return StepCommitted(
            time_s=time_s, task=task, step=number, adapter_digest=f"{task}{number}", loss=0.0, grad_norm=0.0, learning_rate=0.0,
            num_sequences=1, num_trained_tokens=1, num_sampled_tokens=10, training_s=1.0,
        )  # fmt: skip

    return RunResult(
        events=[
            TaskStateChanged(time_s=100, task="a", state="running"),
            WorkerSpan(time_s=103, worker="rollout", start_s=99),
            WorkerSpan(time_s=105, worker="train", start_s=104, task="a"),
            step("a", 1, 105),
            WorkerSpan(time_s=109, worker="train", start_s=108, task="a"),
            step("a", 2, 109),
            TaskStateChanged(time_s=110, task="a", state="done"),
        ],
        start_s=100,
        end_s=110,
    )


def test_figures_of_a_run() -> None:
    row = measure(made_up_result())
    assert row["steps"] == 2
    assert row["end_to_end_s"] == 10
    assert row["steps_per_hour"] == 720
    assert row["time_to_first_step_s"] == 5
    assert row["task_time_per_step_s"] == 4
    assert row["utilisation"] == {"rollout": 0.3, "train": 0.2}
    assert row["rollout_utilisation"] == 0.3
    assert row["idle_share"]["train"] == pytest.approx(0.8)


def test_one_process_that_does_both_decodes_when_it_does_not_train() -> None:
    result = made_up_result()
    result.events = [
        e if not isinstance(e, WorkerSpan) else WorkerSpan(time_s=e.time_s, worker="worker", start_s=e.start_s)
        for e in result.events
    ]
    row = measure(result)
    assert row["utilisation"] == {"worker": 0.5}
    assert row["rollout_utilisation"] == pytest.approx(0.3)


def test_lone_utilisation_is_of_the_tasks_own_time() -> None:
    assert lone_utilisation(made_up_result()) == {"a": pytest.approx(3 / 9)}


def test_a_wait_is_that_of_the_slowest_episode() -> None:
    kinds = {kind.name: kind for kind in (*TINY_KINDS, *SMOLLM2_KINDS)}
    for name, (least, most) in {"vowels": (1, 1), "digits": (1.5, 30), "calculator": (2, 60)}.items():
        task = make_tasks([kinds[name]], 1, steps=3, max_new_tokens=8, delays_s={})[0]
        assert least <= unit_wait_s(with_unit_delay(task, kinds[name])) <= most


def test_digests_are_compared_step_by_step() -> None:
    alone, faults = merge([{("a", 1): "x"}, {("a", 1): "x", ("a", 2): "y"}])
    assert not faults
    assert compare(alone, {"together": {("a", 1): "x", ("a", 2): "y"}}) == (2, [])
    assert len(compare(alone, {"together": {("a", 1): "x", ("a", 2): "z", ("b", 1): "x"}})[1]) == 2
    assert merge([{("a", 1): "x"}, {("a", 1): "y"}])[1]


# ---- runs


def test_tasks_are_mixed_and_fit_the_model() -> None:
    tasks = make_tasks(TINY_KINDS, 32, steps=2, max_new_tokens=16, delays_s={"digits": 0.5})
    assert len({task.name for task in tasks}) == 32
    assert len({task.lora.rank for task in tasks}) >= 4
    assert len({task.lora.target_modules for task in tasks}) >= 4
    assert len({(task.groups_per_step, task.group_size) for task in tasks}) >= 3
    assert {task.name for task in tasks if task.environment.delay.mean_s} == {f"digits-{i}" for i in (0, 8, 16, 24)}


def in_threads(settings: RunSettings) -> RunSettings:
    """No worker process has to start; what is trained is the same."""
    return settings.model_copy(update={"workers": settings.workers.model_copy(update={"executor": "thread"})})


def test_no_company_changes_a_tasks_adapter(tmp_path: Path) -> None:
    """The reward claim: at every step the adapter of each task is, bit for bit, that of the task trained alone."""
    model = make_tiny_model(tmp_path / "model")
    tasks = make_tasks(TINY_KINDS, 2, steps=3, max_new_tokens=12, delays_s={"digits": 0.02})
    alone, faults = merge([digests_of(run_system(PLAIT, in_threads(run_settings(PLAIT, [task], model)))) for task in tasks])
    together = run_system(PLAIT, run_settings(PLAIT, tasks, model))
    assert together.is_batch_invariant, "this machine cannot prove it"
    assert len(alone) == 6
    assert compare(alone, {"plait": digests_of(together)}) == (6, faults)
    assert len(set(alone.values())) >= 4, "they trained"


@pytest.mark.parametrize("system", [SYNCHRONOUS, WITHOUT_MULTI_LORA], ids=lambda system: system.name)
def test_peers_run_to_the_end(tmp_path: Path, system: object) -> None:
    model = make_tiny_model(tmp_path / "model")
    chosen = next(s for s in SYSTEMS if s is system)
    tasks = make_tasks(TINY_KINDS, 2, steps=1, max_new_tokens=4, delays_s={})
    row = measure(run_system(chosen, run_settings(chosen, tasks, model)))
    assert row["steps"] == 2
    assert row["cpu_s"].keys() >= {"controller", "environments"}
    assert 0 < row["rollout_utilisation"] < 1
