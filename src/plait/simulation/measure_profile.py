"""Measures a model on this machine with Plait's own engine and trainer."""

import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from plait.simulation.profile import Point, Profile

if TYPE_CHECKING:
    from plait.models.decoder import Decoder

Tell = Callable[[str, float | None], None]
ROWS = (1, 2, 4, 8, 16, 32)
CONTEXTS = (32, 256, 768)
PREFILLS = (16, 32, 64, 128, 256, 512)
TRAINED = (64, 128, 256, 512, 1024)
NUM_STEPS, NUM_ROUNDS = 6, 3
"""Decode steps of a point, and how often each other point is measured; the median counts."""


def measure(folder: Path, dtype: str = "bfloat16", is_quick: bool = False, tell: Tell = lambda *_: None) -> Profile:
    """Decode by rows and context, prompts, training and publishing. `is_quick`: with fewer and smaller points."""
    import torch

    from plait.models.decoder import Decoder
    from plait.models.weights import load_model

    config, weights = load_model(folder, getattr(torch, dtype))
    rows, contexts = (ROWS[:4], CONTEXTS[:2]) if is_quick else (ROWS, CONTEXTS)
    prefills, trained = (PREFILLS[:4], TRAINED[:3]) if is_quick else (PREFILLS, TRAINED)
    limit = config.max_context_tokens - 2 * NUM_STEPS
    decoder = Decoder(config, weights, prepack=True)
    points = [(n, c) for n in rows for c in sorted({min(c, limit) for c in contexts})]
    total, done = len(points) + len(prefills) + len(trained) + 1, 0

    def told(what: str, items: Any) -> Iterator[Any]:
        nonlocal done
        for item in items:
            tell(f"{what} {item}", done / total)
            yield item
            done += 1

    _decode_s(decoder, 2, 16)
    decode = tuple(
        Point(n * (c + NUM_STEPS // 2), _decode_s(decoder, n, c), n) for n, c in told("decoding (rows, context)", points)
    )
    prefill = tuple(Point(n, _prefill_s(decoder, n)) for n in told("prompt of", sorted({min(n, limit) for n in prefills})))
    plain = Decoder(config, weights)
    train, optimizer_s, publish_s = _training(plain, tuple(told("training on", trained)))
    machine = f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, {dtype}"
    verify_token_s = _verify_token_s(decoder)
    return Profile(
        model=folder.name, machine=machine, decode=decode, prefill=prefill, train=train, verify_token_s=verify_token_s,
        optimizer_s=optimizer_s, publish_s=publish_s,
    )  # fmt: skip


def _engine(decoder: "Decoder", num_rows: int, num_tokens: int) -> Any:
    from plait.engine.adapters import AdapterStore
    from plait.engine.engine import Engine
    from plait.engine.sampler import Sampler

    def none(ref: object) -> Any:
        raise AssertionError(f"no adapter is asked for, but {ref}")

    length = num_tokens + 2 * NUM_STEPS
    return Engine(
        decoder, AdapterStore(none, 1), "profile", max_rows=num_rows, slot_tokens=num_rows * (length + 32), pool_tokens=64,
        max_context_tokens=length + 32, sampler=Sampler(),
    )  # fmt: skip


def _submit(engine: Any, num_rows: int, num_tokens: int) -> None:
    """Prompts differ from their first token on."""
    from plait.types.chunks import Chunk
    from plait.types.policy import LOCAL_TENANT, PolicyVersion
    from plait.types.sampling import SamplingParams

    policy = PolicyVersion(LOCAL_TENANT, "profile", 0)
    for row in range(num_rows):
        prompt = tuple((row + 7 * i) % 250 + 3 for i in range(num_tokens))
        engine.submit(Chunk(str(row), policy, prompt, 2 * NUM_STEPS, SamplingParams(2 * NUM_STEPS, seed=row)))


def _timed(call: Callable[[], Any]) -> float:
    start_s = time.perf_counter()
    call()
    return time.perf_counter() - start_s


def _decode_s(decoder: "Decoder", num_rows: int, num_tokens: int) -> float:
    engine = _engine(decoder, num_rows, num_tokens)
    _submit(engine, num_rows, num_tokens)
    while engine.num_decoded_rows < num_rows:
        engine.step()
    return median(_timed(engine.step) for _ in range(NUM_STEPS))


def _prefill_s(decoder: "Decoder", num_tokens: int) -> float:
    """Without the decode step that follows at once."""

    def once() -> float:
        engine = _engine(decoder, 1, num_tokens)
        _submit(engine, 1, num_tokens)
        first_s = _timed(lambda: _until_decoding(engine))
        return max(1e-7, first_s - median(_timed(engine.step) for _ in range(NUM_STEPS)))

    return median(once() for _ in range(NUM_ROUNDS))


def _until_decoding(engine: Any) -> None:
    while not engine.num_decoded_rows:
        engine.step()


def _verify_token_s(decoder: "Decoder") -> float:
    from plait.engine.step_times import measure_step_times

    times = measure_step_times(decoder, time.perf_counter, 4)
    return max(0.0, times[4, 4] - times[4, 1]) / (4 * 3)


def _training(decoder: "Decoder", sizes: tuple[int, ...]) -> tuple[tuple[Point, ...], float, float]:
    from plait.config.task import LossSettings, OptimizerSettings
    from plait.lora.initial import pristine_adapter
    from plait.lora.fused import FusedAdapter
    from plait.training.trainer import AdapterTrainer
    from plait.types.datum import Datum
    from plait.types.lora import LoraConfig

    lora = LoraConfig(16, 32, ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"))
    trainer = AdapterTrainer(decoder, lora, pristine_adapter(decoder.config, lora))

    def datums(num_tokens: int) -> list[Datum]:
        length = min(128, num_tokens)
        ones = (1.0 / length,) * length
        tokens = tuple(i % 250 + 3 for i in range(length + 1))
        return [Datum(tokens[:-1], tokens[1:], weights=ones, logprobs=(-1.0,) * length, advantages=ones)] * (num_tokens // length)

    def trained_s(num_tokens: int) -> float:
        return median(_timed(lambda: trainer.forward_backward(datums(num_tokens), LossSettings())) for _ in range(NUM_ROUNDS))

    trained_s(sizes[0])
    points = tuple(Point(size, trained_s(size)) for size in sizes)
    optimizer_s = _timed(lambda: trainer.optim_step(OptimizerSettings()))
    tensors = trainer.adapter_tensors()
    publish_s = _timed(lambda: FusedAdapter(lora, tensors, decoder.config, decoder.dtype))
    return points, optimizer_s, publish_s
