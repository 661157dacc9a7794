"""Trained policies: to talk to, and to take away."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from plait.config.load import load_settings
from plait.config.run import ModelSettings, RunSettings
from plait.models.catalogue import find
from plait.observe.events import EvaluationDone
from plait.observe.log import read_latest_events
from plait.state.records import ADAPTER_CONFIG_FILE, ADAPTER_FILE, holds_model, list_steps, read_record
from plait.state.rundir import RunDirectory
from plait.types.chunks import Chunk
from plait.types.errors import ConfigError, PlaitError, StateError
from plait.types.messages import Message
from plait.types.policy import LOCAL_TENANT, AdapterRef, PolicyVersion
from plait.types.sampling import SamplingParams, StopReason

if TYPE_CHECKING:
    from plait.engine.engine import Engine
    from plait.models.decoder import Decoder
    from plait.models.tokenizer import Tokenizer


class Policy:
    """One version of one task's policy, loaded in this process. Close it, or use it in a `with`, to free its memory."""

    def __init__(self, engine: "Engine", tokenizer: "Tokenizer", ref: AdapterRef, max_context_tokens: int) -> None:
        self._engine, self.tokenizer, self.ref, self._max_context_tokens = engine, tokenizer, ref, max_context_tokens
        self._num_requests = 0

    def __repr__(self) -> str:
        return f"Policy({self.ref.policy})"

    def sample(
        self, prompt: str | Sequence[Message], n: int = 1, *, max_new_tokens: int = 256, temperature: float = 1.0, seed: int = 0
    ) -> list[str]:
        """`n` answers to a question or conversation. The same seed gives the same answers."""
        messages = [Message("user", prompt)] if isinstance(prompt, str) else prompt
        context = self.tokenizer.render_prompt(messages)
        room = self._max_context_tokens - len(context)
        if room < 1:
            raise ConfigError(f"the prompt has {len(context)} tokens; the context holds {self._max_context_tokens}.", "Shorten it.")
        params = [self._params(max_new_tokens, temperature, seed + index) for index in range(n)]
        return [self.tokenizer.decode_text(tokens).strip() for tokens in self._generate(context, params, min(room, max_new_tokens))]

    def reply(self, messages: Sequence[Message], *, max_new_tokens: int = 256, temperature: float = 0.0) -> str:
        """The next turn of a conversation; greedy unless a temperature is given."""
        return self.sample(messages, max_new_tokens=max_new_tokens, temperature=temperature)[0]

    def _params(self, max_new_tokens: int, temperature: float, seed: int) -> SamplingParams:
        stops = self.tokenizer.stop_token_ids
        return SamplingParams(max_new_tokens=max_new_tokens, temperature=temperature, stop_token_ids=stops, seed=seed)

    def _generate(self, context: tuple[int, ...], params: Sequence[SamplingParams], budget: int) -> list[tuple[int, ...]]:
        ids = [f"sample-{self._num_requests + index}" for index in range(len(params))]
        self._num_requests += len(params)
        for request_id, sampling in zip(ids, params, strict=True):
            self._engine.submit(Chunk(request_id, self.ref.policy, context, budget, sampling, adapter=self.ref))
        tokens: dict[str, tuple[int, ...]] = {}
        while not self._engine.is_idle:
            for result in self._engine.step():
                if result.stop == StopReason.FAILED:
                    raise PlaitError(result.error)
                tokens[result.request_id] = result.tokens
        return [tokens[request_id] for request_id in ids]

    def close(self) -> None:
        del self._engine

    def __enter__(self) -> "Policy":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def open_policy(directory: RunDirectory, task: str, step: int | None = None) -> Policy:
    """Load a version of a task's policy: `step`, or the best by held-out score, else the latest."""
    from plait.cluster.rollout_role import load_adapter
    from plait.engine.adapters import AdapterStore
    from plait.engine.engine import Engine
    from plait.engine.sampler import Sampler
    from plait.models.tokenizer import Tokenizer

    ref, settings = policy_ref(directory, task, step), settings_of(directory, task)
    path = find(settings.model.path)
    decoder, is_full = _load_decoder(settings.model, path, ref), holds_model(Path(ref.path))
    tokenizer, context = Tokenizer.load(path), settings.model.max_context_tokens
    store = AdapterStore(lambda wanted: decoder if is_full else load_adapter(wanted, decoder), window=1)
    rows = settings.engine.max_rows
    engine = Engine(
        decoder, store, "", max_rows=rows, slot_tokens=settings.engine.slot_tokens, pool_tokens=settings.engine.pool_tokens,
        max_context_tokens=context, sampler=Sampler(), decode=tokenizer.decode,
    )  # fmt: skip
    return Policy(engine, tokenizer, ref, context)


def _load_decoder(model: ModelSettings, path: Path, ref: AdapterRef) -> "Decoder":
    """The base; of a task that trains all weights, the version itself."""
    import torch

    from plait.cluster.machine_checks import pick_device
    from plait.cluster.trained_weights import read_model
    from plait.models.decoder import Decoder
    from plait.models.hf_config import read_config
    from plait.models.weights import load_model

    dtype, device = getattr(torch, model.dtype), torch.device(pick_device(model.device))
    if holds_model(Path(ref.path)):
        config = read_config(path)
        weights = read_model(Path(ref.path), ref.digest, config, dtype, device)
    else:
        config, weights = load_model(path, dtype, device)
    return Decoder(config, weights, prepack=True)


def export_policy(directory: RunDirectory, task: str, *, step: int | None = None, merged: bool = False, to: Path) -> Path:
    """Write a version as a PEFT folder, or the base with it merged in; return the folder.

    Of a task that trains all weights it is a model folder either way.
    """
    ref = policy_ref(directory, task, step)
    if merged or holds_model(Path(ref.path)):
        from plait.client.model_export import export_model
        from plait.lora.merge import merge_into_base

        model = settings_of(directory, task).model
        if holds_model(Path(ref.path)):
            export_model(find(model.path), ref, model.dtype, to)
        else:
            merge_into_base(find(model.path), Path(ref.path), to)
        return to
    to.mkdir(parents=True, exist_ok=True)
    for name in (ADAPTER_FILE, ADAPTER_CONFIG_FILE):
        shutil.copyfile(Path(ref.path) / name, to / name)
    return to


def settings_of(directory: RunDirectory, task: str) -> RunSettings:
    """The part of the run's settings that is on the task's base model. Raises StateError if the run has no such task."""
    settings = load_settings(directory.config)
    models = {each.name: settings.model_of(each) for each in settings.tasks}
    if task not in models:
        raise StateError(f"run {directory.name!r} has no task {task!r}; it has: {', '.join(models)}.", "Name one of those.")
    return settings.of_model(models[task])


def policy_ref(directory: RunDirectory, task: str, step: int | None = None) -> AdapterRef:
    """Where the wanted version lies, verified. Raises StateError that names what there is."""
    folder = directory.steps_folder(task)
    steps = list_steps(folder)
    if not steps:
        known = ", ".join(directory.list_tasks()) or "none"
        raise StateError(f"run {directory.name!r} has no trained task {task!r}; it has: {known}.", "Name one of those.")
    if step is not None and step not in steps:
        kept = ", ".join(map(str, steps))
        raise StateError(
            f"version {step} of task {task!r} is not kept; there are {kept}.", "Name one of those (state.keep_every_steps)."
        )
    chosen = step if step is not None else _best_version(directory, task, steps)
    record = read_record(folder, chosen)
    return AdapterRef(PolicyVersion(LOCAL_TENANT, task, chosen), str(directory.step_folder(task, chosen)), record.adapter_digest)


def _best_version(directory: RunDirectory, task: str, steps: Sequence[int]) -> int:
    """The best by held-out accuracy among the versions kept; the latest if none was evaluated, or on a tie."""
    events = read_latest_events(directory.events) if directory.events.exists() else ()
    scores = {e.version: e.accuracy for e in events if isinstance(e, EvaluationDone) and e.task == task and e.version in steps}
    return max(scores, key=lambda version: (scores[version], version)) if scores else steps[-1]
