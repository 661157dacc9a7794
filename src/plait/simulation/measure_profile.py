"""Measures a model on this machine with Plait's own engine and trainer."""

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from plait.simulation.measure_chunks import ResumedChunks
from plait.simulation.profile import Point, Profile

if TYPE_CHECKING:
    from plait.lora.fused import FusedAdapter
    from plait.models.decoder import Decoder
    from plait.types.chunks import Chunk

Tell = Callable[[str, float | None], None]
Call = tuple[str, int, int]
"""(What, rows, tokens of each)"""
CHUNKS = "ends of chunks"
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
CONTEXTS = (32, 128, 384)
MAX_TOKENS = 4096
"""Of all rows of a decode step together: what is to be computed before the step takes long."""
PREFILLS = (16, 32, 64, 128, 256, 512)
TRAINED = (64, 128, 256, 512, 1024)
NUM_STEPS, NUM_ROUNDS = 3, 3
"""Decode steps of a point in a round, and rounds of all points."""
ALL_STEPS = NUM_STEPS * (NUM_ROUNDS + 1)
"""Of a point: the first round warms up."""
RESUMED_ROWS, RESUMED_TOKENS = 8, 96
"""Of ends of chunks: rows, and what each draws at most in all rounds."""
NUM_ADAPTERS = 4
"""Mixed in a batch, as those of tasks are."""


def measure(
    folder: Path, dtype: str = "bfloat16", is_quick: bool = False, tell: Tell = lambda *_: None, num_adapters: int = NUM_ADAPTERS
) -> Profile:
    """Decode by rows and context, prompts, ends of chunks, training and publishing. `is_quick`: with fewer and smaller points.

    Rows have adapters of rank 16 at all linear layers, `num_adapters` in turn; 0: they have none.
    """
    import torch

    from plait.models.decoder import Decoder
    from plait.models.weights import load_model

    config, weights = load_model(folder, getattr(torch, dtype))
    rows, contexts = (ROWS[:5], CONTEXTS[:2]) if is_quick else (ROWS, CONTEXTS)
    prefills, trained = (PREFILLS[:5], TRAINED[:4]) if is_quick else (PREFILLS, TRAINED)
    limit = config.max_context_tokens - ALL_STEPS - 1
    training = _Training(Decoder(config, weights))
    decoder = Adapted(Decoder(config, weights, prepack=True), [training.fused() for _ in range(num_adapters)])
    calls: dict[Call, Callable[[], float]] = {
        ("decoding", n, c): partial(decoder.decode_s, n, c)
        for n in rows
        for c in sorted({min(c, limit) for c in contexts})
        if n * c <= MAX_TOKENS
    }
    calls |= {("prompt", 1, n): partial(decoder.prefill_s, n) for n in sorted({min(n, limit) for n in prefills})}
    calls |= {
        (CHUNKS, RESUMED_ROWS, n): decoder.chunks(n).resume_s for n in sorted({min(n, limit - RESUMED_TOKENS) for n in contexts})
    }
    calls |= {("training", 1, n): partial(training.trained_s, n) for n in trained}
    best_s = _measured(calls, tell)
    decode = tuple(Point(n * (c + ALL_STEPS // 2), s, n) for (what, n, c), s in best_s.items() if what == "decoding")
    prefill, train, resume = (
        tuple(Point(n, s) for (what, _, n), s in best_s.items() if what == wanted) for wanted in ("prompt", "training", CHUNKS)
    )
    software = f"torch {torch.__version__}, {dtype}, {num_adapters} adapters"
    return Profile(
        model=folder.name, machine=f"{platform.machine()}, {torch.get_num_threads()} threads, {software}",
        decode=decode, prefill=prefill, train=train, resume=resume, verify_token_s=_verify_token_s(decoder.decoder),
        optimizer_s=training.optimizer_s(), publish_s=training.publish_s(),
    )  # fmt: skip


def _measured(calls: Mapping[Call, Callable[[], float]], tell: Tell) -> dict[Call, float]:
    """Of each call, over all rounds; the first one, which warms up, is left out."""
    seconds: dict[Call, list[float]] = {key: [] for key in calls}
    for number in range(NUM_ROUNDS + 1):
        for done, (key, call) in enumerate(calls.items()):
            tell(f"{key[0]}, {key[1]} x {key[2]} tokens", (number + done / len(calls)) / (NUM_ROUNDS + 1))
            seconds[key].append(call())
    return {key: _chosen(key, found[1:]) for key, found in seconds.items()}


def _chosen(key: Call, seconds: Sequence[float]) -> float:
    """The fastest, as what else runs can only add to it. The end of a chunk is a difference, to which that may do both."""
    return max(1e-7, median(seconds)) if key[0] == CHUNKS else min(seconds)


class Adapted:
    """A decoder, and the adapters that its rows have in turn."""

    def __init__(self, decoder: "Decoder", adapters: Sequence["FusedAdapter"]) -> None:
        self.decoder, self._adapters = decoder, adapters
        self._engines: dict[tuple[int, int], Any] = {}
        """Of the decode steps: their prompts are computed once."""

    def decode_s(self, num_rows: int, num_tokens: int) -> float:
        engine = self._engines.get((num_rows, num_tokens))
        if engine is None:
            engine = self._engines[num_rows, num_tokens] = self._engine(num_rows, num_tokens)
            while engine.num_decoded_rows < num_rows:
                engine.step()
        return min(_timed(engine.step) for _ in range(NUM_STEPS))

    def prefill_s(self, num_tokens: int) -> float:
        """Without the decode step that follows at once."""
        engine = self._engine(1, num_tokens)
        first_s = _timed(lambda: _until_decoding(engine))
        return max(1e-7, first_s - min(_timed(engine.step) for _ in range(NUM_STEPS)))

    def chunks(self, num_tokens: int) -> ResumedChunks:
        length = num_tokens + RESUMED_TOKENS
        return ResumedChunks(
            lambda: self._empty_engine(RESUMED_ROWS, length, 2 * RESUMED_ROWS * (length + 32)),
            _chunks(RESUMED_ROWS, num_tokens, len(self._adapters), RESUMED_TOKENS),
        )

    def _engine(self, num_rows: int, num_tokens: int) -> Any:
        answer = _answer_tokens(num_rows)
        engine = self._empty_engine(num_rows, num_tokens + answer, 64)
        for chunk in _chunks(num_rows, num_tokens, len(self._adapters), answer):
            engine.submit(chunk)
        return engine

    def _empty_engine(self, num_rows: int, length: int, pool_tokens: int) -> Any:
        from plait.engine.adapters import AdapterStore
        from plait.engine.engine import Engine
        from plait.engine.sampler import Sampler

        store = AdapterStore(lambda ref: self._adapters[ref.policy.version], 1)
        return Engine(
            self.decoder, store, "profile", max_rows=num_rows, slot_tokens=num_rows * (length + 32), pool_tokens=pool_tokens,
            max_context_tokens=length + 32, sampler=Sampler(),
        )  # fmt: skip


def _chunks(num_rows: int, num_tokens: int, num_adapters: int, answer: int) -> "Iterator[Chunk]":
    """Prompts differ from their first token on."""
    from plait.types.chunks import Chunk
    from plait.types.policy import LOCAL_TENANT, AdapterRef, PolicyVersion
    from plait.types.sampling import SamplingParams

    for row in range(num_rows):
        policy = PolicyVersion(LOCAL_TENANT, "profile", row % max(1, num_adapters))
        adapter = AdapterRef(policy, "", str(policy)) if num_adapters else None
        prompt = tuple((row + 7 * i) % 250 + 3 for i in range(num_tokens))
        yield Chunk(str(row), policy, prompt, answer, SamplingParams(answer, seed=row), adapter)


def _answer_tokens(num_rows: int) -> int:
    """The first rows decode while the last ones' prompts are computed."""
    return ALL_STEPS + num_rows + 2


def _timed(call: Callable[[], Any]) -> float:
    start_s = time.perf_counter()
    call()
    return time.perf_counter() - start_s


def _until_decoding(engine: Any) -> None:
    while not engine.num_decoded_rows:
        engine.step()


def _verify_token_s(decoder: "Decoder") -> float:
    from plait.engine.step_times import measure_step_times

    times = measure_step_times(decoder, time.perf_counter, 4)
    return max(0.0, times[4, 4] - times[4, 1]) / (4 * 3)


class _Training:
    """Rank 16 at all linear layers."""

    def __init__(self, decoder: "Decoder") -> None:
        from plait.lora.initial import pristine_adapter
        from plait.training.trainer import AdapterTrainer
        from plait.types.lora import LoraConfig

        self._decoder = decoder
        self._lora = LoraConfig(16, 32, ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"))
        self._trainer = AdapterTrainer(decoder, self._lora, pristine_adapter(decoder.config, self._lora))

    def trained_s(self, num_tokens: int) -> float:
        """In sequences of up to 128 tokens, which differ from the first on: what several begin with is computed once."""
        from plait.config.task import LossSettings
        from plait.types.datum import Datum

        length = min(128, num_tokens)
        ones, lower = (1.0 / length,) * length, (-1.0,) * length
        texts = [tuple((i + 7 * number) % 250 + 3 for i in range(length + 1)) for number in range(num_tokens // length)]
        data = [Datum(text[:-1], text[1:], weights=ones, logprobs=lower, advantages=ones) for text in texts]
        return _timed(lambda: self._trainer.forward_backward(data, LossSettings()))

    def optimizer_s(self) -> float:
        from plait.config.task import OptimizerSettings

        return _timed(lambda: self._trainer.optim_step(OptimizerSettings()))

    def publish_s(self) -> float:
        return _timed(self.fused)

    def fused(self) -> "FusedAdapter":
        """What an engine makes of an adapter that comes."""
        from plait.lora.fused import FusedAdapter

        return FusedAdapter(self._lora, self._trainer.adapter_tensors(), self._decoder.config, self._decoder.dtype)
