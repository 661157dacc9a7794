"""Deployments that a worker group's process was told to let go of, until it says that it has."""

import asyncio
from collections import Counter


class Departures:
    def __init__(self) -> None:
        self._answers: dict[str, asyncio.Future[None]] = {}
        """Those that somebody waits for."""
        self._num_told: Counter[str] = Counter()
        """How often each was told, and has not been answered."""

    @property
    def are_awaited(self) -> bool:
        return bool(self._answers)

    def told(self, deployment: str) -> None:
        """From now on what comes of it is of one that leaves."""
        self._num_told[deployment] += 1

    def is_under_way(self, deployment: str) -> bool:
        return self._num_told[deployment] > 0

    async def wait(self, deployment: str, patience_s: float | None) -> None:
        """Until it has left or the process is gone, at most so long."""
        answer = self._answers[deployment] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait([answer], timeout=patience_s)
        finally:
            self._answers.pop(deployment, None)

    def answered(self, deployment: str) -> None:
        self._num_told -= Counter([deployment])
        if not self.is_under_way(deployment):
            self._end(deployment)

    def end_all(self) -> None:
        """The process is gone."""
        self._num_told.clear()
        for deployment in list(self._answers):
            self._end(deployment)

    def _end(self, deployment: str) -> None:
        answer = self._answers.pop(deployment, None)
        if answer is not None and not answer.done():
            answer.set_result(None)
