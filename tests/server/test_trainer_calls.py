"""What the training worker is told of tenants."""

from typing import Any, cast

from plait.cluster.messages import SetTenantWeight
from plait.server.backend import Backend
from plait.server.trainer_calls import TrainerCalls


class Fake:
    """A backend whose worker takes everything."""

    def __init__(self) -> None:
        self.listeners: list[Any] = []
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)


def test_weights_are_told_at_once_and_again_to_a_worker_that_replaces_another() -> None:
    backend = Fake()
    trainer = TrainerCalls(cast(Backend, backend))
    trainer.set_weight("ana", 2.0)
    trainer.set_weight("ben", 1.0)
    trainer.set_weight("ana", 3.0)
    assert backend.sent[-1] == SetTenantWeight("ana", 3.0)
    trainer.on_trainer_lost((), 0)
    backend.sent.clear()
    trainer.on_trainer_back()
    assert backend.sent == [SetTenantWeight("ana", 3.0), SetTenantWeight("ben", 1.0)]
