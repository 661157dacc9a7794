"""The engines compared. Each is set up before the clock starts, and draws every token of a workload when asked."""

import os
from pathlib import Path
from typing import Any, Protocol

import torch

from benchmarks.common import Timing, timed
from benchmarks.engine_workload import Workload, adapter_config, adapter_tensors
from plait.engine.adapters import AdapterStore
from plait.engine.engine import Engine
from plait.engine.reference import ReferenceEngine
from plait.engine.sampler import Sampler
from plait.lora.fused import FusedAdapter
from plait.models.decoder import Decoder
from plait.models.invariance import self_test
from plait.models.weights import load_model
from plait.types.chunks import Chunk
from plait.types.policy import LOCAL_TENANT, AdapterRef, PolicyVersion
from plait.types.sampling import SamplingParams, StopReason

NUM_ADAPTERS = 4
REFERENCE_TOKENS = 8


class EngineSystem(Protocol):
    name: str
    dtype: str
    note: str

    def can_run(self, workload: Workload) -> bool: ...

    def run(self, workload: Workload) -> Timing:
        """Draw all tokens. Raises RuntimeError if fewer came out."""
        ...

    def close(self) -> None: ...


class PlaitEngine:
    name = "plait"

    def __init__(self, folder: Path, dtype: str) -> None:
        self.dtype, torch_dtype = dtype, getattr(torch, dtype)
        self.config, weights = load_model(folder, torch_dtype, "cpu")
        report = self_test(self.config, weights)
        self.is_batch_invariant = report.granted
        self.note = "batch-invariant" if report.granted else f"not batch-invariant: {report.detail}"
        self.decoder = Decoder(self.config, weights, prepack=True)
        self.adapters = [
            FusedAdapter(adapter_config(index), adapter_tensors(self.config, index), self.config, torch_dtype)
            for index in range(NUM_ADAPTERS)
        ]

    def can_run(self, workload: Workload) -> bool:
        return workload.num_adapters <= NUM_ADAPTERS

    def run(self, workload: Workload) -> Timing:
        length = workload.prompt_tokens + workload.new_tokens
        engine = Engine(
            self.decoder, AdapterStore(lambda ref: self.adapters[ref.policy.version], NUM_ADAPTERS), "benchmark",
            max_rows=workload.batch, slot_tokens=workload.batch * (length + 32), pool_tokens=workload.num_requests * length,
            max_context_tokens=2 * length, sampler=Sampler(use_gumbel=not self.is_batch_invariant),
        )  # fmt: skip
        return timed(lambda: self._generate(engine, workload))

    def _generate(self, engine: Engine, workload: Workload) -> None:
        for index, prompt in enumerate(workload.prompts(self.config.vocab_size)):
            policy = PolicyVersion(LOCAL_TENANT, "benchmark", index % max(1, workload.num_adapters))
            adapter = AdapterRef(policy, "", str(policy)) if workload.num_adapters else None
            params = SamplingParams(workload.new_tokens, seed=index)
            engine.submit(Chunk(str(index), policy, tuple(prompt), workload.new_tokens, params, adapter))
        results = []
        while not engine.is_idle:
            results += engine.step()
        workload.check(sum(len(result.tokens) for result in results))
        if any(result.stop != StopReason.LENGTH for result in results):
            raise RuntimeError(f"plait: {next(result.error for result in results if result.error)}")

    def close(self) -> None:
        """Nothing is held but memory."""


class ReferenceLoop:
    """One request at a time, the context computed again for each token; a few tokens only, which flatters it."""

    name = "reference loop"
    note = f"measured over {REFERENCE_TOKENS} tokens of one request"

    def __init__(self, plait: PlaitEngine) -> None:
        self.plait, self.dtype = plait, plait.dtype

    def can_run(self, workload: Workload) -> bool:
        return workload.batch == 1 and workload.num_adapters == 0

    def run(self, workload: Workload) -> Timing:
        """Scaled up to the workload."""
        engine = ReferenceEngine(self.plait.decoder, Sampler(), 2 * (workload.prompt_tokens + REFERENCE_TOKENS))
        prompt = tuple(workload.prompts(self.plait.config.vocab_size)[0])
        timing = timed(lambda: engine.generate(prompt, SamplingParams(REFERENCE_TOKENS)))
        factor = workload.num_new_tokens / REFERENCE_TOKENS
        return Timing(factor * timing.wall_s, factor * timing.cpu_s)

    def close(self) -> None:
        """Nothing is held but memory."""


class TransformersEngine:
    """Continuous batching of transformers; adapters of several kinds in one batch are not on offer there."""

    name = "transformers"
    note = "continuous batching"

    def __init__(self, folder: Path, dtype: str) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        self.dtype = dtype
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), attn_implementation="sdpa")
        self.model = model.eval()

    def can_run(self, workload: Workload) -> bool:
        return workload.num_adapters == 0

    def run(self, workload: Workload) -> Timing:
        from transformers import ContinuousBatchingConfig, GenerationConfig

        generation = GenerationConfig(
            max_new_tokens=workload.new_tokens, do_sample=True, top_k=0, top_p=1.0, eos_token_id=-1, pad_token_id=0
        )
        batching = ContinuousBatchingConfig(
            page_size=32, num_blocks=4 * workload.num_requests + 64, max_batch_tokens=512, max_requests_per_batch=workload.batch,
            use_cuda_graph=False, use_async_batching=False,
        )  # fmt: skip
        prompts = workload.prompts(self.model.config.vocab_size)

        def generate() -> None:
            answers = self.model.generate_batch(
                prompts, generation_config=generation, continuous_batching_config=batching, progress_bar=False
            )
            workload.check(sum(len(answer.generated_tokens) for answer in answers.values()))

        return timed(generate)

    def close(self) -> None:
        """Nothing is held but memory."""
