"""The figures of `benchmarks.plexrl`, from runs that were made up, and who has which workers in its systems."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.plexrl import bubbles_of, compared, rows_of
from benchmarks.plexrl_headlines import headlines_of
from benchmarks.plexrl_jobs import PAIR, SCENARIOS, SIX, Job, settings_of
from benchmarks.plexrl_measures import step_times_s
from benchmarks.plexrl_run import GroupUse, Outcome
from benchmarks.plexrl_systems import (
    ISOLATED,
    ORDERED,
    PLAIT_ONE,
    PLAIT_TRAINING,
    PLAIT_TWO,
    SPLIT,
    SYSTEMS,
    System,
    budget,
    make_groups,
)
from benchmarks.plexrl_table import print_bubbles, print_rows
from plait.cluster.configurations import configurations
from plait.cluster.groups import grouped_workers, worker_group
from plait.cluster.groups.factory import grouped
from plait.observe.events import StepCommitted, WorkerSpan
from tests.cluster.groups.fake_group import Disk


def outcome(jobs: Sequence[Job], step_s: float, system: System = SPLIT, digest: str = "d") -> Outcome:
    """A step of each job every `step_s` from 10 s before the clock starts, a quarter of it in training."""
    made = Outcome(start_s=100.0, end_s=120.0)
    for job in jobs:
        times_s = [90.0 + step_s * number for number in range(1, int(40 / step_s))]
        made.events[job.name] = [step(job.name, number, time_s, digest) for number, time_s in enumerate(times_s, 1)]
        made.events[job.name] += [WorkerSpan(time_s=at_s, worker="train", start_s=at_s - step_s / 4) for at_s in times_s]
    if system.groups is not None:
        made.groups = {
            name: GroupUse(10, 40, 1.0, 2.0, 12.0, 50, 100, 4, 0.5) for name in system.members([job.name for job in jobs])
        }
    return made


def step(task: str, number: int, time_s: float, digest: str) -> StepCommitted:
    return StepCommitted(
        time_s=time_s, task=task, step=number, adapter_digest=f"{task} {number} {digest}", loss=0.0, grad_norm=0.0,
        learning_rate=0.0, num_sequences=1, num_trained_tokens=1,
    )  # fmt: skip


def runs_of(jobs: Sequence[Job], step_s: float) -> dict[str, list[list[Outcome]]]:
    """Alone a step takes one second."""
    runs = {system.name: [[outcome(jobs, step_s, system)]] for system in SYSTEMS}
    return runs | {ISOLATED.name: [[outcome([job], 1.0) for job in jobs]]}


def rows_of_six(rows: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    return [row for row in rows if row["scenario"] == SIX.name]


def test_worker_seconds_are_of_workers_that_are_held() -> None:
    rows = {row["system"]: row for row in rows_of(PAIR, SYSTEMS, runs_of(PAIR.jobs, 1.25))}
    assert [rows[system.name]["workers"] for system in (ISOLATED, SPLIT, PLAIT_TRAINING, PLAIT_TWO, PLAIT_ONE)] == [4, 4, 3, 2, 1]
    assert rows[ISOLATED.name]["worker_seconds_per_step"] == pytest.approx(2.0)
    assert rows[SPLIT.name]["worker_seconds_per_step"] == pytest.approx(2.5)
    assert rows[PLAIT_ONE.name]["of_split"] == pytest.approx(0.25)
    assert rows[PLAIT_ONE.name]["max_slowdown"] == pytest.approx(1.25)
    assert rows[PLAIT_ONE.name]["setup_share"] == pytest.approx(0.05)
    assert rows[PLAIT_TWO.name]["switches_per_step"] == pytest.approx(20 / 32)
    assert rows[PLAIT_TRAINING.name]["least_of_split"] == pytest.approx(0.75)
    lost = {"all": 0.25, "waiting": 4 / 32, "setup": 2 / 32, "rest": 2 / 32}
    assert rows[PLAIT_TWO.name]["lost_s_per_step"] == pytest.approx(lost)


def test_headlines_say_what_is_met() -> None:
    runs = {scenario.name: runs_of(scenario.jobs, 1.25) for scenario in SCENARIOS}
    rows = [row for scenario in SCENARIOS for row in rows_of(scenario, SYSTEMS, runs[scenario.name])]
    bubbles = bubbles_of(runs[PAIR.name][ISOLATED.name])
    assert bubbles == {"chat": pytest.approx(0.75, abs=0.02), "code": pytest.approx(0.75, abs=0.02)}
    headlines = headlines_of(rows, 10, 1, bubbles)
    assert headlines["two_jobs_two_groups_saved"]["met"]
    assert not headlines["two_jobs_shared_training_group_saved"]["met"]
    assert "3 workers for 4, which save at most 25.0%" in headlines["two_jobs_shared_training_group_saved"]["note"]
    assert "two_jobs_one_group_pace" in headlines_of(rows[: rows.index(rows_of_six(rows)[0])], 10, 1, bubbles), "of two jobs alone"
    assert not headlines["six_jobs_one_group_pace"]["met"]
    assert not headlines["digests_equal"]["met"]
    assert {f"hrrs_for_{system.order}" for system in ORDERED} <= headlines.keys()
    console = Console(record=True, width=150)
    print_rows(console, rows)
    print_bubbles(console, PAIR.name, bubbles)
    assert "shared training group" in console.export_text()


def test_adapters_that_differ_from_those_of_the_job_alone_are_found() -> None:
    runs = runs_of(PAIR.jobs, 1.25)
    assert compared(runs)[1] == []
    runs[PLAIT_ONE.name][0][0] = outcome(PAIR.jobs, 1.25, PLAIT_ONE, "other")
    num_compared, faults = compared(runs)
    assert num_compared > 0
    assert len(faults) == 2 * 31, "one for each step of each job"
    assert "chat after step 1" in faults[0]


def test_too_few_steps_are_told() -> None:
    with pytest.raises(RuntimeError, match="chat took 1 steps in 20 s: measure longer"):
        step_times_s([outcome(PAIR.jobs, 15.0)])


def test_a_device_has_room_for_half_and_for_the_largest() -> None:
    assert budget([10, 20, 30]) == 30
    assert budget([100, 10]) == 100
    assert PLAIT_TWO.members(["a", "b"]) == {"rollout": ["a/rollout", "b/rollout"], "train": ["a/train", "b/train"]}
    assert len({job.base for job in SIX.jobs}) == 3
    assert {job.training for job in SIX.jobs} == {"lora", "full"}


@pytest.mark.parametrize("system", [PLAIT_TRAINING, PLAIT_TWO, PLAIT_ONE], ids=lambda system: system.name)
def test_each_deployment_is_in_the_group_that_its_system_says(
    system: System, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Processes of groups are made up."""
    jobs = [job.name for job in PAIR.jobs]
    monkeypatch.setattr(worker_group, "GroupLink", Disk())
    monkeypatch.setattr(grouped_workers, "expected_bytes", lambda _: 10)

    async def started() -> None:
        sizes = {member: 10 for members in system.members(jobs).values() for member in members}
        groups = make_groups(system, jobs, sizes, tmp_path)
        settings = [settings_of(job, tmp_path, is_colocated=False) for job in PAIR.jobs]
        made = [grouped(groups, one.name)(configurations(one, "", 1), 0, *[lambda *_: None] * 4) for one in settings]
        await asyncio.gather(*(workers.start() for workers in made))
        groups.look()
        groups.placement.settle()
        assert {name: sorted(group.deployments) for name, group in groups.groups.items()} == system.members(jobs)
        assert groups.misplaced() == {}
        assert [len(workers.pids) for workers in made] == [2, 2]
        assert len({pid for workers in made for pid in workers.pids.values()}) == len(groups.groups)
        await asyncio.gather(*(workers.close() for workers in made))
        assert [group.pid for group in groups.groups.values()] == [None] * len(groups.groups)

    asyncio.run(started())
