from hypothesis import given
from hypothesis import strategies as st

from plait.tasks.update_queue import UpdateQueue

tasks = st.sampled_from("abcd")


@given(st.lists(tasks, unique=True), st.sets(tasks), st.integers(1, 4))
def test_those_who_may_are_taken_in_order_up_to_the_bound(arrived: list[str], allowed: set[str], bound: int) -> None:
    queue = UpdateQueue(bound)
    for task in arrived:
        queue.add(task, 1)
    expected = [(task, 1) for task in arrived if task in allowed][:bound]
    assert queue.take(lambda task, step: task in allowed) == expected
    assert queue.ready == tuple(item for item in ((task, 1) for task in arrived) if item not in expected)


def test_a_task_has_one_update_at_a_time() -> None:
    queue = UpdateQueue()
    queue.add("a", 1)
    queue.add("a", 2)
    assert queue.take(lambda task, step: True) == [("a", 1)]
    assert queue.in_flight("a") == 1
    assert queue.take(lambda task, step: True) == []
    queue.finish("a")
    assert queue.take(lambda task, step: True) == [("a", 2)]


def test_dropping_a_task_forgets_what_waits_and_what_runs() -> None:
    queue = UpdateQueue(1)
    for item in (("a", 1), ("a", 2), ("b", 1)):
        queue.add(*item)
    queue.take(lambda task, step: True)
    queue.drop("a")
    assert queue.ready == (("b", 1),)
    assert queue.take(lambda task, step: True) == [("b", 1)]
    queue.drop("unknown")
