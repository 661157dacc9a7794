"""An engine that draws tokens as a pure function of context, seed and position, when told to."""

from collections.abc import Sequence
from hashlib import blake2b

from msgspec.structs import replace

from plait.types.chunks import Chunk, ChunkResult
from plait.types.sampling import SamplingParams, StopReason

VOCAB_SIZE = 50
STOP_TOKEN = 7


def draw(context: Sequence[int], seed: int) -> tuple[int, float]:
    """The next token and its log-probability: a hash."""
    digest = blake2b(repr((tuple(context), seed)).encode(), digest_size=4).digest()
    return digest[0] % VOCAB_SIZE, -digest[1] / 100


def whole_generation(context: Sequence[int], sampling: SamplingParams) -> tuple[tuple[int, ...], tuple[float, ...], StopReason]:
    """What a generation must come to, however it is cut."""
    tokens: list[int] = []
    logprobs: list[float] = []
    while len(tokens) < sampling.max_new_tokens:
        token, logprob = draw([*context, *tokens], sampling.seed)
        tokens.append(token)
        logprobs.append(logprob)
        if token in sampling.stop_token_ids:
            return tuple(tokens), tuple(logprobs), StopReason.STOP_TOKEN
    return tuple(tokens), tuple(logprobs), StopReason.LENGTH


class FakeEngine:
    """Holds chunks until `run`; remembers the most it held, and which caches it stores."""

    def __init__(self) -> None:
        self.chunks: dict[str, Chunk] = {}
        self.most_chunks = 0
        self.longest_budget = 0
        self.cancelled: list[str] = []
        self.cancelled_results: list[ChunkResult] = []
        self.caches: set[str] = set()
        self.released: set[str] = set()
        self.num_submits = self.num_ended_stretches = 0

    def submit(self, chunks: Sequence[Chunk]) -> None:
        self.num_submits += 1
        for chunk in chunks:
            assert chunk.request_id not in self.chunks
            assert chunk.budget_tokens >= 1
            self.chunks[chunk.request_id] = chunk
            self.longest_budget = max(self.longest_budget, chunk.budget_tokens)
        self.most_chunks = max(self.most_chunks, len(self.chunks))

    def cancel(self, request_ids: Sequence[str]) -> None:
        for request_id in request_ids:
            self.cancelled.append(request_id)
            chunk = self.chunks.pop(request_id, None)
            if chunk is not None:
                self.cancelled_results.append(ChunkResult(request_id, chunk.policy, (1, 1), (0.0, 0.0), StopReason.CANCELLED))

    def release(self, handles: Sequence[str], went_on: bool = False) -> None:
        assert not self.released & set(handles), "released twice"
        self.released |= set(handles)
        self.caches -= set(handles)

    def end_stretches(self) -> None:
        self.num_ended_stretches += 1
        self.chunks = {name: replace(chunk, stretch_tokens=0) for name, chunk in self.chunks.items()}

    def run(self, chunk_id: str) -> ChunkResult:
        """Serve one chunk to its end."""
        chunk = self.chunks.pop(chunk_id)
        context = chunk.context_tokens[: len(chunk.context_tokens) - chunk.generated_tokens]
        tokens, logprobs, stop = whole_generation(context, chunk.sampling)
        assert chunk.context_tokens == context + tokens[: chunk.generated_tokens], "it goes on from what was drawn"
        end = chunk.generated_tokens + chunk.budget_tokens + chunk.stretch_tokens
        stop = stop if end >= len(tokens) else StopReason.BUDGET
        handle = f"cache of {chunk_id}" if stop == StopReason.BUDGET or chunk.keep_cache else ""
        if handle:
            self.caches.add(handle)
        piece = slice(chunk.generated_tokens, end)
        return ChunkResult(chunk_id, chunk.policy, tokens[piece], logprobs[piece], stop, handle)
