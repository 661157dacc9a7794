"""Updates around the loss of the training worker: each is trained once."""

from pathlib import Path

from plait.cluster.messages import OpenTask, TaskOpened, Update
from plait.observe.events import StepCommitted
from plait.state.rundir import RunDirectory
from plait.tasks.compute import Compute, ToTrainer
from plait.tasks.identity import ALONE
from plait.tasks.ready_batch import ReadyBatch
from plait.tasks.trainer_link import TrainerLink
from plait.types.policy import AdapterRef, PolicyVersion
from tests.runs import tiny_settings, tiny_task


class FakeTrainer:
    """Takes messages; a lost one drops them."""

    def __init__(self) -> None:
        self.messages: list[ToTrainer] = []
        self.is_lost = False

    def train(self, message: ToTrainer) -> None:
        if not self.is_lost:
            self.messages.append(message)

    def updates(self) -> list[Update]:
        return [message for message in self.messages if isinstance(message, Update)]


def make_link(tmp_path: Path) -> tuple[TrainerLink, FakeTrainer, list[int]]:
    settings, trainer = tiny_settings(tmp_path, tiny_task("a")), FakeTrainer()
    directory = RunDirectory.create(tmp_path / "runs", "run", "")
    committed: list[int] = []
    compute: Compute = trainer  # type: ignore[assignment]
    link = TrainerLink(
        settings, directory, compute, ALONE, lambda event: None, lambda task, version: None,
        lambda event: committed.append(event.step), {},
    )  # fmt: skip
    return link, trainer, committed


def batch(step: int) -> ReadyBatch:
    return ReadyBatch("a", step, (), [], 1e-3, 0, event(step), ready_s=1.0)


def event(step: int) -> StepCommitted:
    return StepCommitted(
        time_s=2.0, task="a", step=step, adapter_digest="", loss=0.0, grad_norm=1.0, learning_rate=0.1, num_sequences=1,
        num_trained_tokens=1,
    )  # fmt: skip


def opened(version: int) -> TaskOpened:
    ref = AdapterRef(PolicyVersion("local", "a", version), "folder", "digest")
    return TaskOpened("a", ref, 0, event(version) if version else None)


def test_an_update_that_comes_while_the_task_is_opened_is_sent_once(tmp_path: Path) -> None:
    link, trainer, _ = make_link(tmp_path)
    link.open("a")
    link.send(batch(1), ())
    assert [type(message) for message in trainer.messages] == [OpenTask]
    link.opened(opened(0))
    assert [update.event.step for update in trainer.updates()] == [1]


def test_an_update_in_flight_is_sent_again_unless_it_had_taken_place(tmp_path: Path) -> None:
    link, trainer, committed = make_link(tmp_path)
    link.open("a")
    link.opened(opened(0))
    link.send(batch(1), ())
    link.open("a")
    link.opened(opened(0))
    assert [update.event.step for update in trainer.updates()] == [1, 1]
    link.open("a")
    link.opened(opened(1))
    assert committed == [1]
    assert len(trainer.updates()) == 2


def test_an_update_that_comes_while_the_worker_is_away_is_sent_when_it_is_back(tmp_path: Path) -> None:
    link, trainer, _ = make_link(tmp_path)
    link.open("a")
    link.opened(opened(0))
    trainer.is_lost = True
    link.send(batch(1), ())
    trainer.is_lost = False
    link.open("a")
    link.opened(opened(0))
    assert [update.event.step for update in trainer.updates()] == [1]
