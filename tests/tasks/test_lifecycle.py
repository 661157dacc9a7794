import itertools

import pytest

from plait.observe.task_summary import TERMINAL_STATES
from plait.tasks.lifecycle import ENDED, TRANSITIONS, TaskState, check_transition
from plait.types.errors import PlaitError


def test_every_state_has_a_row() -> None:
    assert TRANSITIONS.keys() == set(TaskState)


@pytest.mark.parametrize(("start", "end"), itertools.product(TaskState, TaskState))
def test_only_what_the_table_has_is_a_transition(start: TaskState, end: TaskState) -> None:
    if end in TRANSITIONS[start]:
        check_transition("sums", start, end)
    else:
        with pytest.raises(PlaitError, match=f"task 'sums' is {start} and cannot become {end}"):
            check_transition("sums", start, end)


def test_ends_are_never_left_and_every_other_state_can_reach_each() -> None:
    assert {TaskState.DONE, TaskState.CANCELLED, TaskState.FAILED} == ENDED
    for state in set(TaskState) - ENDED:
        assert _reachable(state) >= ENDED


def _reachable(state: TaskState) -> set[TaskState]:
    found: set[TaskState] = set()
    waiting = [state]
    while waiting:
        new = TRANSITIONS[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def test_the_event_log_knows_the_same_ends() -> None:
    assert {str(state) for state in ENDED} == TERMINAL_STATES
