"""Worker groups in a run's state, from their events alone."""

import io

from rich.console import Console

from plait.observe.events import GroupSample, JobMoved, RunStarted, decode_event, encode_event
from plait.observe.live_table import render_run
from plait.observe.plain import plain_line
from plait.observe.summary import RunSummary

START = RunStarted(
    time_s=0.0, run="r", model="m", dtype="float32", device="cpu", tasks=("a",), workers=(), batch_invariant=True, plait_version="1"
)


def sample(
    up_s: float, busy_s: float, num_switches: int = 0, deployments: tuple[str, ...] = ("a/train",), **more: int
) -> GroupSample:
    return GroupSample(
        time_s=up_s, group="group-0", deployments=deployments, up_s=up_s, busy_s=busy_s, num_calls=num_switches + 1,
        num_switches=num_switches, **more,
    )  # fmt: skip


def test_shares_are_of_all_time_and_of_the_latest_stretch() -> None:
    [group] = RunSummary([START, sample(10.0, 9.0, 3), sample(20.0, 11.0, 5)]).snapshot(20.0).groups
    assert (group.busy_share, group.busy_share_recent) == (11.0 / 20.0, 2.0 / 10.0)
    assert (group.num_calls, group.num_switches) == (6, 5)


def test_totals_go_on_where_the_run_was_resumed() -> None:
    events = [START, sample(20.0, 10.0, 4, num_moves=1), START, sample(5.0, 5.0, 2), sample(10.0, 8.0, 3)]
    [group] = RunSummary(events).snapshot(40.0).groups
    assert (group.busy_share, group.num_switches, group.num_moves) == (18.0 / 30.0, 7, 1)


def test_status_names_groups_and_what_is_there() -> None:
    events = [START, sample(10.0, 5.0, 2, ("a/rollout", "a/train"), num_moves=1)]
    console = Console(width=160, file=io.StringIO())
    with console.capture() as shown:
        console.print(render_run(RunSummary(events).snapshot(10.0), 160, 40))
    assert "group-0: busy 50 %, 50 % since start · 3 calls · 2 switches · 1 moves here · a/rollout, a/train" in shown.get()


def test_a_move_is_told_and_logged() -> None:
    moved = JobMoved(time_s=1.0, job="small", source="group-0", target="group-1")
    assert decode_event(encode_event(moved)) == moved
    line = plain_line(moved, RunSummary([START, moved]))
    assert line is not None
    assert line.endswith("base model small moved from group-0 to group-1")
