"""A step's training data on its way to the trainer."""

from dataclasses import dataclass

from plait.cluster.messages import Update
from plait.observe.events import StepCommitted
from plait.types.datum import Datum
from plait.types.policy import PolicyVersion


@dataclass(slots=True)
class ReadyBatch:
    task: str
    step: int
    datums: tuple[Datum, ...]
    policies: list[PolicyVersion]
    """Of every sampled segment; empty for supervised steps."""
    learning_rate: float
    data_cursor: int
    """The first question after this step's."""
    event: StepCommitted
    ready_s: float
    protected_steps: tuple[int, ...] = ()

    def update(self) -> Update:
        return Update(
            task=self.task,
            datums=self.datums,
            learning_rate=self.learning_rate,
            data_cursor=self.data_cursor,
            event=self.event,
            ready_s=self.ready_s,
            protected_steps=self.protected_steps,
        )
