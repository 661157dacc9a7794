"""What the worker processes are told of each other's threads."""

import os
from typing import Any, cast

import pytest

from plait.cluster.client import WorkerClient
from plait.cluster.messages import Configure, SetThreads
from plait.cluster.workers import Workers, configurations
from plait.config.run import RunSettings
from tests.runs import tiny_task


class Client:
    def __init__(self, settings: Configure) -> None:
        self.settings = settings
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)


def told(lend_threads: bool) -> list[Any]:
    """What the rollout worker hears while the trainer is idle and while it is not."""
    section = {"rollout_threads": 2, "train_threads": 1, "lend_threads": lend_threads}
    settings = RunSettings.model_validate({"workers": section, "tasks": [tiny_task("a")]})
    workers = Workers(configurations(settings, "model", 1), 0, *[lambda *_: None] * 4)
    clients = {c.name: Client(c) for c in workers.configurations}
    workers._clients = cast(dict[str, WorkerClient], clients)
    workers.lend_threads(trainer_is_idle=True)
    workers.lend_threads(trainer_is_idle=False)
    return [message for client in clients.values() for message in client.sent]


def test_an_idle_trainers_threads_are_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert told(lend_threads=True) == [SetThreads(3), SetThreads(2)]


def test_unless_the_settings_say_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert told(lend_threads=False) == []
