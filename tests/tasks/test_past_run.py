"""What a resumed run takes over from its log."""

from plait.observe.events import TaskStateChanged
from plait.tasks.past_run import past_run


def test_states_hold_only_where_they_are_to_be_kept() -> None:
    events = [TaskStateChanged(time_s=1.0, task="a", state="running"), TaskStateChanged(time_s=2.0, task="a", state="cancelled")]
    assert past_run(events).states == {}
    assert past_run(events, keep_states=True).states["a"].state == "cancelled"
