"""The rollout engine on vLLM, with the interface of `engine.engine.Engine`: chunks in, results out, one thread.

- A chunk is one request of vLLM, whose context is the chunk's; its prefix cache makes the next chunk cheap. There are no handles.
- Tokens are drawn by Plait's own sampler (`drawing`), so chunk boundaries change none. vLLM is not batch-invariant: a near-tie may
  come out otherwise in another batch, and log-probabilities differ from the trainer's in the last bits.
- A chunk that can never be served, and one whose adapter does not serve, fails alone.
"""

from dataclasses import dataclass, field
from typing import Any

from plait.engine.limits import EngineLimits
from plait.engine.stops import Decode, StopRule
from plait.engine.vllm.adapters import VllmAdapters
from plait.engine.vllm.drawing import DRAWN, PARAMS, vllm_params
from plait.types.chunks import Chunk, ChunkResult
from plait.types.errors import PlaitError
from plait.types.sampling import StopReason


@dataclass(slots=True)
class _Request:
    chunk: Chunk
    rule: StopRule
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    cached_tokens: int = 0

    def take(self, token: int, logprob: float) -> StopReason | None:
        self.tokens.append(token)
        self.logprobs.append(logprob)
        reason = self.rule.after(token, len(self.chunk.context_tokens) + len(self.tokens))
        if reason is None and len(self.tokens) >= self.chunk.budget_tokens:
            return StopReason.BUDGET
        return reason

    def result(self, stop: StopReason, error: str = "") -> ChunkResult:
        return ChunkResult(
            self.chunk.request_id, self.chunk.policy, tuple(self.tokens), tuple(self.logprobs), stop,
            cached_tokens=self.cached_tokens, error=error,
        )  # fmt: skip


class VllmEngine:
    """`llm` is vLLM's LLMEngine, made by `start.make_llm`."""

    def __init__(self, llm: Any, adapters: VllmAdapters, limits: EngineLimits, decode: Decode) -> None:
        self.llm, self.adapters, self.limits, self.decode = llm, adapters, limits, decode
        self._requests: dict[str, _Request] = {}
        self._done: list[ChunkResult] = []
        self.num_prefilled_tokens = self.num_decoded_tokens = self.num_decoded_rows = 0

    def submit(self, chunk: Chunk) -> None:
        """Queue a chunk. What can never be served comes back as FAILED from the next step."""
        problem = self._problem(chunk)
        if not problem:
            try:
                self._start(chunk)
            except (PlaitError, ValueError) as error:
                self._requests.pop(chunk.request_id, None)
                PARAMS.pop(chunk.request_id, None)
                problem = str(error)
        if problem:
            self._done.append(ChunkResult(chunk.request_id, chunk.policy, (), (), StopReason.FAILED, error=problem))

    def _problem(self, chunk: Chunk) -> str:
        if chunk.request_id in self._requests:
            return f"request_id {chunk.request_id!r} is already running: give each request its own"
        return self.limits.problem(chunk)

    def _start(self, chunk: Chunk) -> None:
        generated = chunk.context_tokens[len(chunk.context_tokens) - chunk.generated_tokens :]
        rule = StopRule(chunk.sampling, generated, self.limits.max_context_tokens, self.decode)
        lora = self.adapters.request(chunk.adapter) if chunk.adapter is not None else None
        num_context = len(chunk.context_tokens)
        self._requests[chunk.request_id] = _Request(chunk, rule)
        PARAMS[chunk.request_id] = chunk.sampling
        params = vllm_params(chunk.request_id, num_context, self.limits.longest_tokens(chunk) - num_context)
        self.llm.add_request(chunk.request_id, {"prompt_token_ids": list(chunk.context_tokens)}, params, lora_request=lora)

    def cancel(self, request_id: str) -> None:
        """End a request now; its tokens so far come back as CANCELLED. Unknown or finished ids are fine."""
        if request_id in self._requests:
            self._finish(request_id, StopReason.CANCELLED, abort=True)

    def release(self, handle: str, went_on: bool = False) -> None:
        """vLLM's prefix cache is its own."""

    def end_stretches(self) -> None:
        """Chunks do not stretch here."""

    @property
    def is_idle(self) -> bool:
        return not (self._requests or self._done)

    @property
    def num_rows(self) -> int:
        return len(self._requests)

    def step(self) -> list[ChunkResult]:
        """One step of vLLM; the chunks that ended."""
        outputs = self.llm.step() if self._requests else []
        self.num_decoded_rows = len(outputs)
        for output in outputs:
            self._take(output)
        done, self._done = self._done, []
        return done

    def _take(self, output: Any) -> None:
        request = self._requests.get(output.request_id)
        if request is None:
            return
        if not request.tokens:
            request.cached_tokens = output.num_cached_tokens or 0
            self.num_prefilled_tokens += len(request.chunk.context_tokens) - request.cached_tokens
        drawn = DRAWN.get(output.request_id, {})
        for token in output.outputs[0].token_ids:
            self.num_decoded_tokens += 1
            reason = request.take(token, drawn.pop(len(request.tokens)))
            if reason is not None:
                return self._finish(output.request_id, reason, abort=not output.finished)
        if output.finished:
            self._fail(output.request_id, f"vLLM ended it: {output.outputs[0].finish_reason}")

    def _finish(self, request_id: str, reason: StopReason, abort: bool) -> None:
        self._done.append(self._forget(request_id).result(reason))
        if abort:
            self.llm.abort_request([request_id])

    def _fail(self, request_id: str, error: str) -> None:
        self._done.append(self._forget(request_id).result(StopReason.FAILED, error))

    def _forget(self, request_id: str) -> _Request:
        PARAMS.pop(request_id, None)
        DRAWN.pop(request_id, None)
        return self._requests.pop(request_id)

    def check_idle(self) -> None:
        """Raise AssertionError if something is held although nothing runs."""
        assert self.is_idle, "not idle"
        assert not PARAMS.keys() | DRAWN.keys(), "a request is still held"
        assert not self.llm.has_unfinished_requests(), "vLLM has a request that nobody waits for"
