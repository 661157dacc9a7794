"""Prompts to score, spread over the engines. Each is answered once; when its engine is lost, it goes to another. One that nobody
waits for any more is cancelled.

Runs in the controller's event loop.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from plait.cluster.messages import CancelRequests
from plait.cluster.model_messages import PromptScored, ScorePrompt


@dataclass(slots=True)
class _Waiting:
    prompt: ScorePrompt
    future: "asyncio.Future[PromptScored]"
    engine: str = ""
    """Who scores it; empty: nobody is there."""


class PromptScoring:
    def __init__(self, send: Callable[[str, ScorePrompt | CancelRequests], None]) -> None:
        self._send = send
        self._engines: list[str] = []
        self._waiting: dict[str, _Waiting] = {}

    def attach(self, engine: str) -> None:
        """A fresh engine comes; what a lost one of its name had is sent again."""
        self.detach(engine)
        self._engines.append(engine)
        self._send_unsent()

    def detach(self, engine: str) -> None:
        """The engine is lost; fine if it is not here."""
        if engine in self._engines:
            self._engines.remove(engine)
        for waiting in self._waiting.values():
            if waiting.engine == engine:
                waiting.engine = ""
        self._send_unsent()

    async def score(self, prompt: ScorePrompt) -> PromptScored:
        """Raises what `fail_all` is called with meanwhile."""
        waiting = self._waiting[prompt.request_id] = _Waiting(prompt, asyncio.get_running_loop().create_future())
        self._send_unsent()
        try:
            return await waiting.future
        finally:
            del self._waiting[prompt.request_id]
            if waiting.future.cancelled() and waiting.engine:
                self._send(waiting.engine, CancelRequests((prompt.request_id,)))

    def on_scored(self, message: PromptScored) -> None:
        waiting = self._waiting.get(message.request_id)
        if waiting is not None and not waiting.future.done():
            waiting.future.set_result(message)

    def fail_all(self, error: Exception) -> None:
        for waiting in self._waiting.values():
            if not waiting.future.done():
                waiting.future.set_exception(error)

    def _send_unsent(self) -> None:
        for waiting in list(self._waiting.values()):
            if not waiting.engine and self._engines and not waiting.future.done():
                waiting.engine = min(self._engines, key=self._num_prompts)
                self._send(waiting.engine, waiting.prompt)

    def _num_prompts(self, engine: str) -> int:
        return sum(waiting.engine == engine for waiting in self._waiting.values())
