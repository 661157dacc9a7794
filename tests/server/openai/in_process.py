"""The endpoint in this process, over an engine that draws when it is told to: what the network and the clock would blur."""

import asyncio
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from fastapi import FastAPI
from msgspec.structs import replace

from plait.models.tokenizer import Tokenizer
from plait.operations.quotas import QuotaLimits, Quotas
from plait.rollout.service import RolloutService
from plait.server.certificates import Certifier
from plait.server.openai.endpoint import OpenAIEndpoint
from plait.server.openai.models import ModelNames
from plait.server.principal import Principal
from plait.server.routes import openai
from plait.server.routes.dependencies import principal_of
from plait.server.sample_call import EngineLimits, SampleCall, Sampled
from plait.server.sampling import Sampling
from plait.types.chunks import Chunk, ChunkResult
from plait.types.sampling import StopReason
from tests.rollout.fake_engine import FakeEngine

TENANT = "tenant"
CHUNK_TOKENS = 64


class ScriptedEngine(FakeEngine):
    """Whatever it is asked, it draws the same tokens."""

    def __init__(self, tokens: Sequence[int]) -> None:
        super().__init__()
        self._tokens = tuple(tokens)

    def run(self, chunk_id: str) -> ChunkResult:
        chunk = self.chunks.pop(chunk_id)
        end = chunk.generated_tokens + chunk.budget_tokens
        tokens = self._tokens[chunk.generated_tokens : end]
        stop = StopReason.BUDGET if end < len(self._tokens) else StopReason.STOP_TOKEN
        return ChunkResult(chunk_id, chunk.policy, tokens, (-0.5,) * len(tokens), stop)


class ChunkwiseEngine(FakeEngine):
    """Ends every chunk at its budget, so that a generation has as many as its length says."""

    def submit(self, chunks: Sequence[Chunk]) -> None:
        super().submit([replace(chunk, stretch_tokens=0) for chunk in chunks])


class Endpoint:
    """One tenant asks; `engine` holds what it is asked."""

    def __init__(self, tokenizer: Tokenizer, engine: FakeEngine | None = None, **limits: int) -> None:
        self.engine = engine or ChunkwiseEngine()
        rollout = RolloutService(CHUNK_TOKENS, lambda _: 100)
        rollout.attach("rollout", self.engine, 100_000)
        self.rollout = rollout
        self.quotas = Quotas(QuotaLimits(**limits))
        self.metered: list[tuple[SampleCall, Sampled]] = []
        backend: Any = SimpleNamespace(rollout=rollout)
        futures: Any = None
        self.sampling = Sampling(
            lambda _: backend, futures, self.quotas, Certifier(), 100, lambda *sampled: self.metered.append(sampled)
        )
        names = ModelNames(None, None, ("base",), 0.0)  # type: ignore[arg-type]
        base = SimpleNamespace(name="base", tokenizer=tokenizer, limits=EngineLimits(tokenizer.vocab_size, 1000, ()))
        endpoint = OpenAIEndpoint(lambda _: base, self.sampling, names)
        self.app = FastAPI()
        self.app.state.service = SimpleNamespace(openai=endpoint)
        self.app.dependency_overrides[principal_of] = _principal
        self.app.include_router(openai.router)

    def run_chunks(self) -> None:
        """Serve what the engine holds."""
        self.rollout.on_results([self.engine.run(chunk_id) for chunk_id in sorted(self.engine.chunks)])


async def _principal() -> Principal:
    return Principal(TENANT, "key", is_admin=False)


async def settle(endpoint: Endpoint, num_chunks: int | None = None) -> None:
    """Until the engine holds so many chunks; FastAPI goes through threads before it asks for any."""
    for _ in range(60_000 if num_chunks else 60):
        await asyncio.sleep(0.001 if num_chunks else 0)
        if num_chunks and len(endpoint.engine.chunks) == num_chunks:
            return
    assert not num_chunks, "the engine was not asked"


class Connection:
    """One request; the client goes away when `leave` is called."""

    def __init__(self, endpoint: Endpoint, path: str, body: dict[str, Any]) -> None:
        self._gone = asyncio.Event()
        self._body: bytes | None = json.dumps(body).encode()
        self.status = 0
        self.received = b""
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "POST",
            "path": path, "raw_path": path.encode(), "root_path": "", "scheme": "http", "query_string": b"",
            "headers": [(b"content-type", b"application/json")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        self.task = asyncio.create_task(endpoint.app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.received += message.get("body", b"")

    def leave(self) -> None:
        self._gone.set()

    def events(self) -> list[Any]:
        lines = [line.removeprefix("data: ") for line in self.received.decode().split("\n\n") if line]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]
