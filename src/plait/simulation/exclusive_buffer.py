"""Requests of one task at a time, for engines without multi-LoRA batches. Pure."""

from collections.abc import Iterator
from typing import cast

from plait.rollout.buffer import RequestBuffer
from plait.rollout.buffer_scheduler import BufferScheduler
from plait.rollout.request import GenerationRequest
from plait.rollout.scheduler import Scheduler


class ExclusiveBuffer:
    """A `RequestBuffer` to its service: a buffer for each task, of which one at a time gives requests."""

    def __init__(self) -> None:
        self._buffers: dict[str, RequestBuffer] = {}
        """By task; the one whose turn it is comes first."""
        self._tasks: dict[str, str] = {}
        """request_id -> task."""

    def _of(self, request_id: str) -> RequestBuffer:
        return self._buffers[self._tasks[request_id]]

    @property
    def num_running(self) -> int:
        return sum(buffer.num_running for buffer in self._buffers.values())

    @property
    def num_waiting(self) -> int:
        return sum(buffer.num_waiting for buffer in self._buffers.values())

    def __iter__(self) -> Iterator[GenerationRequest]:
        return (request for buffer in self._buffers.values() for request in buffer)

    def add(self, request: GenerationRequest) -> None:
        task = request.policy.task
        self._tasks[request.request_id] = task
        self._buffers.setdefault(task, RequestBuffer()).add(request)

    def take(self) -> GenerationRequest | None:
        current = next((buffer for buffer in self._buffers.values() if buffer.num_running), None)
        if current is not None:
            return current.take()
        for task in list(self._buffers):
            buffer = self._buffers[task] = self._buffers.pop(task)
            if buffer.num_waiting:
                return buffer.take()
        return None

    def running(self, request_id: str) -> GenerationRequest | None:
        return self._of(request_id).running(request_id) if request_id in self._tasks else None

    def requeue(self, request_id: str) -> None:
        self._of(request_id).requeue(request_id)

    def requeue_running(self) -> None:
        for buffer in self._buffers.values():
            buffer.requeue_running()

    def finish(self, request_id: str) -> GenerationRequest:
        request = self._of(request_id).finish(request_id)
        del self._tasks[request_id]
        return request

    def remove(self, request_id: str) -> bool:
        return request_id in self._tasks and self._buffers[self._tasks.pop(request_id)].remove(request_id)


def exclusive_scheduler() -> Scheduler:
    return BufferScheduler(cast(RequestBuffer, ExclusiveBuffer()))
