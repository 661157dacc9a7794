"""One deployment of a worker group, as the controller has it, and who hears of it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from plait.cluster.messages import Configure, FromWorker, Ready
from plait.types.errors import WorkerFailure


class GroupListener(Protocol):
    """Hears of one deployment, in the event loop."""

    def on_message(self, message: FromWorker) -> None: ...

    def on_lost(self, failure: WorkerFailure) -> None: ...

    def on_ready(self) -> None:
        """It was lost and is back."""
        ...

    def on_failed(self, error: Exception) -> None:
        """It will not come back, or a listener raised `error`."""
        ...


@dataclass(slots=True)
class Member:
    settings: Configure
    listener: GroupListener
    hosting: "asyncio.Future[Ready]"
    is_up: bool = False
    is_lost: bool = False
    """It was up, and is to come up again."""

    def tell(self, call: Callable[[GroupListener], None]) -> None:
        """An error of the listener's own is what it failed with: raised further, all others of the group would wait for ever."""
        try:
            call(self.listener)
        except Exception as error:
            self.listener.on_failed(error)
