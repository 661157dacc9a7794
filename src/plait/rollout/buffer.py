"""The request buffer: which waiting generation gets the next chunk. Pure: no clock, no input or output.

- Queues take turns, so no task's burst holds up another's.
- Within a queue, requests that have begun go before new ones, then first come first served.
- Every request added leaves exactly once: by `finish`, or by `remove`.
- After `requeue_running`, lost chunks run again from what was returned before; sampling is a pure function, so nothing changes.
"""

from collections import OrderedDict, deque

from plait.rollout.request import GenerationRequest


class RequestBuffer:
    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[GenerationRequest]] = OrderedDict()
        self._running: dict[str, GenerationRequest] = {}
        self._known: dict[str, GenerationRequest] = {}

    def add(self, request: GenerationRequest) -> None:
        if request.request_id in self._known:
            raise ValueError(f"request_id {request.request_id!r} is in the buffer already")
        self._known[request.request_id] = request
        self._queue_of(request).append(request)

    def _queue_of(self, request: GenerationRequest) -> deque[GenerationRequest]:
        return self._queues.setdefault(request.queue, deque())

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._known) - len(self._running)

    def take(self) -> GenerationRequest | None:
        """The next request to run a chunk of; it is running until `requeue`, `finish` or `remove`."""
        for name in list(self._queues):
            queue = self._queues[name]
            if queue:
                self._queues.move_to_end(name)
                request = queue.popleft()
                self._running[request.request_id] = request
                return request
            del self._queues[name]
        return None

    def running(self, request_id: str) -> GenerationRequest | None:
        return self._running.get(request_id)

    def requeue(self, request_id: str) -> None:
        """The request's chunk ended at its budget."""
        request = self._running.pop(request_id)
        self._queue_of(request).appendleft(request)

    def requeue_running(self) -> None:
        """The engine was lost with all chunks that ran."""
        for request_id in reversed(list(self._running)):
            self.requeue(request_id)

    def finish(self, request_id: str) -> GenerationRequest:
        del self._known[request_id]
        return self._running.pop(request_id)

    def remove(self, request_id: str) -> bool:
        """Forget a request; whether it was running."""
        request = self._known.pop(request_id, None)
        if request is None:
            return False
        if self._running.pop(request_id, None) is not None:
            return True
        self._queue_of(request).remove(request)
        return False
