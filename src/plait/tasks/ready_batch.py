"""A step's training data on its way to the trainer."""

from dataclasses import dataclass

import msgspec

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
    sent_s: float = 0.0

    def update(self, protected_steps: tuple[int, ...]) -> Update:
        event = msgspec.structs.replace(self.event, queued_s=self.sent_s - self.ready_s)
        return Update(self.task, self.datums, self.learning_rate, self.data_cursor, event, protected_steps)
