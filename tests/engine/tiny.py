"""Tiny models, trained-looking adapters, and a driver that cuts generations into chunks as the rollout service does."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from plait.engine.adapters import AdapterStore
from plait.engine.engine import Engine
from plait.engine.reference import ReferenceEngine
from plait.engine.sampler import Sampler
from plait.lora.initial import pristine_adapter
from plait.lora.mix import FusedAdapter
from plait.models.decoder import Decoder
from plait.models.invariance import self_test
from plait.models.tiny import make_tiny_model
from plait.models.tokenizer import Tokenizer
from plait.models.weights import load_model
from plait.types.chunks import Chunk, ChunkResult
from plait.types.lora import LoraConfig
from plait.types.model import ModelConfig
from plait.types.policy import AdapterRef, PolicyVersion
from plait.types.sampling import SamplingParams, StopReason

TOLERANCE = 1e-4
"""Where batch invariance is not granted, log-probabilities may differ by so much (nats, float32)."""

ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
LORAS = (
    LoraConfig(rank=8, alpha=16.0, target_modules=ALL_LINEAR),
    LoraConfig(rank=4, alpha=4.0, target_modules=("q_proj", "v_proj", "lm_head")),
    LoraConfig(rank=20, alpha=10.0, target_modules=("gate_proj", "up_proj", "down_proj")),
    LoraConfig(rank=1, alpha=2.0, target_modules=(*ALL_LINEAR, "lm_head")),
)
"""Task `t0` has the first of them, and so on in a circle; task `base` has no adapter."""


SIZES = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 64}
"""torch takes other kernels, which round otherwise, for products of up to 16^3 multiplications: no real model has such."""


@dataclass(frozen=True, eq=False)
class Model:
    config: ModelConfig
    weights: dict[str, Tensor]
    decoder: Decoder
    """The engine's."""
    trainer: Decoder
    tokenizer: Tokenizer
    is_exact: bool
    """The self-test grants batch invariance to this very model: the engine must give the reference's bits."""


@cache
def model(family: str = "llama", dtype: torch.dtype = torch.bfloat16, **overrides: Any) -> Model:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = make_tiny_model(folder, family, **{**SIZES, **overrides})  # type: ignore[arg-type]
        config, weights = load_model(path, dtype)
        tokenizer = Tokenizer.load(path)
    is_exact = self_test(config, weights).granted
    return Model(config, weights, Decoder(config, weights, prepack=True), Decoder(config, weights), tokenizer, is_exact)


def adapter_tensors(config: ModelConfig, lora: LoraConfig, seed: int, scale: float = 0.3) -> dict[str, Tensor]:
    """As if trained: B is random, large enough to change what is said."""
    generator = torch.Generator().manual_seed(seed)
    tensors = pristine_adapter(config, msgspec.structs.replace(lora, seed=seed))
    return {n: torch.randn(t.shape, generator=generator) * scale if n.endswith(".B") else t for n, t in tensors.items()}


@cache
def adapter(model: Model, task: str, version: int = 1) -> FusedAdapter | None:
    if task == "base":
        return None
    lora = LORAS[int(task[1:]) % len(LORAS)]
    tensors = adapter_tensors(model.config, lora, seed=100 * version + int(task[1:]))
    return FusedAdapter(lora, tensors, model.config, model.decoder.dtype)


def ref_of(task: str, version: int = 1, tenant: str = "local") -> AdapterRef:
    return AdapterRef(PolicyVersion(tenant, task, version), f"/{task}/{version}", f"digest-{task}-{version}")


def load_from(model: Model) -> Callable[[AdapterRef], FusedAdapter]:
    def load(ref: AdapterRef) -> FusedAdapter:
        loaded = adapter(model, ref.policy.task, ref.policy.version)
        assert loaded is not None
        return loaded

    return load


def make_engine(model: Model, store: AdapterStore | None = None, **overrides: Any) -> Engine:
    sizes = {"max_rows": 8, "slot_tokens": 4096, "pool_tokens": 2048, "max_context_tokens": 256, "sampler": Sampler()}
    store = store or AdapterStore(load_from(model), 8)
    return Engine(model.decoder, store, "base-digest", **{**sizes, **overrides})


@dataclass(frozen=True)
class Request:
    request_id: str
    context: tuple[int, ...]
    params: SamplingParams
    task: str = "base"
    version: int = 1
    keep_cache: bool = False

    def chunk(self, drawn: Sequence[int] = (), budget: int = 1000) -> Chunk:
        ref = ref_of(self.task, self.version)
        return Chunk(
            request_id=self.request_id,
            policy=ref.policy,
            context_tokens=(*self.context, *drawn),
            budget_tokens=min(budget, self.params.max_new_tokens - len(drawn)),
            sampling=self.params,
            adapter=None if self.task == "base" else ref,
            generated_tokens=len(drawn),
            keep_cache=self.keep_cache,
        )


@dataclass
class Outcome:
    """All chunks of one request, joined."""

    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    results: list[ChunkResult] = field(default_factory=list)

    @property
    def stop(self) -> StopReason:
        return self.results[-1].stop

    @property
    def error(self) -> str:
        return self.results[-1].error

    @property
    def cached_tokens(self) -> int:
        return self.results[0].cached_tokens


class Driver:
    """Submits requests, chunk after chunk, and joins what comes back."""

    def __init__(self, engine: Engine, budget: int = 1000) -> None:
        self.engine, self.budget = engine, budget
        self.requests: dict[str, Request] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.num_steps = 0

    def submit(self, *requests: Request) -> None:
        self.expect(*requests)
        for request in requests:
            self.engine.submit(request.chunk(budget=self.budget))

    def expect(self, *requests: Request) -> None:
        """Requests whose first chunk the engine has already."""
        for request in requests:
            self.requests[request.request_id] = request
            self.outcomes[request.request_id] = Outcome()

    def step(self) -> None:
        self.num_steps += 1
        for result in self.engine.step():
            outcome = self.outcomes[result.request_id]
            outcome.tokens += result.tokens
            outcome.logprobs += result.logprobs
            outcome.results.append(result)
            if result.stop == StopReason.BUDGET:
                self.engine.submit(self.requests[result.request_id].chunk(outcome.tokens, self.budget))

    def run(self) -> dict[str, Outcome]:
        """To the end; what is held then is a leak."""
        while not self.engine.is_idle:
            self.step()
            assert self.num_steps < 5000, "the engine makes no progress"
        self.engine.check_idle()
        return self.outcomes


def serve(engine: Engine, requests: Sequence[Request], budget: int = 1000) -> dict[str, Outcome]:
    driver = Driver(engine, budget)
    driver.submit(*requests)
    return driver.run()


@cache
def expected(
    model: Model, request: Request, max_context_tokens: int = 256, use_gumbel: bool = False
) -> tuple[tuple[int, ...], tuple[float, ...], StopReason]:
    """What the reference engine says."""
    reference = ReferenceEngine(model.trainer, Sampler(use_gumbel), max_context_tokens, model.tokenizer.decode)
    return reference.generate(request.context, request.params, adapter(model, request.task, request.version))


def assert_same(model: Model, request: Request, outcome: Outcome, **reference: Any) -> None:
    """The reference's tokens and stop reason; its bits of log-probability where batch invariance is granted."""
    tokens, logprobs, stop = expected(model, request, **reference)
    assert outcome.tokens == tokens, request
    assert outcome.stop == stop, request
    assert {result.policy for result in outcome.results} == {ref_of(request.task, request.version).policy}
    assert_close(model, request, outcome.logprobs, logprobs)


def assert_close(model: Model, request: Request, found: Sequence[float], wanted: Sequence[float]) -> None:
    """Log-probabilities of one request, computed in two ways."""
    if model.is_exact:
        assert tuple(found) == tuple(wanted), request
        return
    assert model.decoder.dtype == torch.float32, "bfloat16 that is not exact has no tolerance worth testing"
    assert len(found) == len(wanted)
    assert max((abs(a - b) for a, b in zip(found, wanted, strict=True)), default=0) < TOLERANCE, request


def publish(folder: Path, lora: LoraConfig, tensors: dict[str, Tensor], policy: PolicyVersion) -> AdapterRef:
    """Write a real PEFT folder."""
    from plait.lora.peft_format import adapter_digest, export_adapter

    export_adapter(folder, lora, tensors)
    return AdapterRef(policy, str(folder), adapter_digest(tensors))
