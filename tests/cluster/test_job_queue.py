"""Managed tasks and models that clients drive take turns in one queue."""

from pathlib import Path

from plait.cluster.job_queue import JobQueue
from plait.cluster.messages import JobFailed, OpenTask, Update, UpdateDone
from plait.cluster.model_messages import CallDone, OpenModel
from plait.cluster.model_role import ModelRole
from plait.cluster.recorded_adapter import AdapterBase
from plait.cluster.train_role import TrainRole
from plait.config.task import TaskSettings
from plait.training.training_pass import PassSettings
from plait.types.datum import Datum
from tests.cluster.models import LORA, backward, data, decoder, step
from tests.runs import tiny_task
from tests.state.conftest import make_event

MICRO_BATCH_TOKENS = 16


class Roles:
    def __init__(self, folder: Path) -> None:
        self.queue = JobQueue()
        base = AdapterBase(decoder(), "base", "tiny", PassSettings(MICRO_BATCH_TOKENS))
        self.train, self.models = TrainRole(base, self.queue), ModelRole(base, self.queue)
        settings = TaskSettings.model_validate(tiny_task("task")).model_dump_json()
        self.train.handle(OpenTask("local", settings, str(folder / "task"), 10))
        self.models.handle(OpenModel("s:train:0", "local", LORA, str(folder / "model")))

    def update(self, datums: tuple[Datum, ...], number: int = 1) -> list[str]:
        message = Update("task", datums, 1e-3, 8 * number, make_event("task", number), ready_s=0.0)
        return [type(reply).__name__ for reply in self.train.handle(message)]

    def run(self) -> list[tuple[str, str]]:
        """Who ended a job, in order, and with what."""
        ends = []
        while self.queue.has_work:
            owner, progress = self.queue.work()
            ends += [(owner, type(reply).__name__) for reply in progress.replies]
        return ends


def test_a_short_call_passes_a_managed_tasks_long_update(tmp_path: Path) -> None:
    roles = Roles(tmp_path)
    roles.update(data(0, 8))
    roles.models.handle(backward(1, data(1, 1)[:1], "s:train:0"))
    roles.models.handle(step(2, "s:train:0"))
    done, updated = CallDone.__name__, UpdateDone.__name__
    assert roles.run() == [("s:train:0", done), ("s:train:0", done), ("task", updated)]


def test_a_short_update_passes_a_models_long_call(tmp_path: Path) -> None:
    roles = Roles(tmp_path)
    roles.models.handle(backward(1, data(0, 8), "s:train:0"))
    roles.update(data(1, 1)[:1])
    assert roles.run() == [("task", UpdateDone.__name__), ("s:train:0", CallDone.__name__)]


def test_a_task_has_one_update_at_a_time_and_a_failing_one_ends_alone(tmp_path: Path) -> None:
    roles = Roles(tmp_path)
    assert roles.update(data(0, 1)) == []
    assert roles.update(data(0, 1)) == [JobFailed.__name__]
    assert roles.update(data(0, 1), number=7) == [JobFailed.__name__]
    roles.models.handle(backward(1, data(1, 1), "s:train:0"))
    assert sorted(roles.run()) == [("s:train:0", CallDone.__name__), ("task", UpdateDone.__name__)]


def owners(roles: Roles) -> str:
    """Whose each slice is."""
    found = ""
    while roles.queue.has_work:
        owner, _ = roles.queue.work()
        found += {"task": "t", "s:train:0": "m", "other": "o"}[owner]
    return found


def test_tenants_take_turns_slice_by_slice_and_a_managed_update_counts_for_its_tenant(tmp_path: Path) -> None:
    roles = Roles(tmp_path)
    roles.models.handle(OpenModel("other", "else", LORA, str(tmp_path / "other")))
    roles.update(data(0, 8))
    roles.models.handle(backward(1, data(1, 8), "s:train:0"))
    roles.models.handle(backward(1, data(2, 8), "other"))
    order = owners(roles)
    assert order.count("o") > 3
    assert order[1 : 2 * order.count("o") : 2] == "o" * order.count("o"), "every second slice is the other tenant's"


def test_slices_are_shared_by_weight(tmp_path: Path) -> None:
    roles = Roles(tmp_path)
    roles.models.handle(OpenModel("other", "else", LORA, str(tmp_path / "other")))
    roles.queue.set_weight("else", 2.0)
    roles.update(data(0, 24))
    roles.models.handle(backward(1, data(2, 24), "other"))
    assert owners(roles).startswith("too" * 4)


def test_a_call_tells_how_many_slices_of_others_it_waited_for(tmp_path: Path) -> None:
    roles = Roles(tmp_path)
    roles.models.handle(OpenModel("other", "else", LORA, str(tmp_path / "other")))
    roles.update(data(0, 24))
    roles.models.handle(backward(1, data(2, 8), "other"))
    waits = []
    while roles.queue.has_work:
        waits += [r.longest_wait_slices for r in roles.queue.work()[1].replies if isinstance(r, CallDone)]
    assert waits == [1]
