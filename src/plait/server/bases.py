"""The base models of the server, each with what it alone has: workers, tokenizer, limits. To each request that of its model.

Whoever names a base model uses its own name or an alias; what is stored keeps the name under which it was asked for.
"""

from collections.abc import Callable, Iterator, Sequence

from plait.cluster.all_of import all_of
from plait.cluster.chunk_scheduler import make_scheduler
from plait.cluster.messages import Ready
from plait.cluster.workers import MakeWorkers
from plait.config.server import ServerSettings
from plait.models.catalogue import find
from plait.models.hf_config import read_config
from plait.models.tokenizer import Tokenizer
from plait.observe.events import EngineSample
from plait.server.backend import Backend
from plait.server.call_handler import ModelShape
from plait.server.errors import ServiceError, not_served
from plait.server.metrics import Metrics
from plait.server.model_runner import Handler
from plait.server.observed import ObservedScheduler
from plait.server.sample_call import EngineLimits
from plait.server.served_models import ServedModels
from plait.server.trainer_calls import TrainerCalls


class Base:
    """One base model. `settings` are those of a server that has it alone; `number` is its place among all."""

    handler: Handler
    """Carries out the calls of models trained on it; set by whoever puts the service together."""

    def __init__(
        self,
        settings: ServerSettings,
        number: int,
        metrics: Metrics,
        on_failed: Callable[[Exception], None],
        make_workers: MakeWorkers | None = None,
    ) -> None:
        folder = find(settings.model.path)
        config = read_config(folder)
        self.settings, self.family = settings, config.family
        self.served = ServedModels(settings, folder)
        self.tokenizer = Tokenizer.load(folder)
        self.shape = ModelShape(config.vocab_size, min(settings.model.max_context_tokens, config.max_context_tokens))
        self.limits = EngineLimits(self.shape.vocab_size, self.shape.max_context_tokens, self.tokenizer.stop_token_ids)
        self.scheduler = make_scheduler(settings)
        observed = ObservedScheduler(metrics, self.scheduler)
        kv_folder = settings.data_folder / (f"kv-{number}" if number else "kv")
        self.backend = Backend(settings, str(folder), observed, on_failed, kv_folder, make_workers, self.scheduler.history)
        self.trainer = TrainerCalls(self.backend)
        metrics.listen(self.backend, self.name)

    @property
    def name(self) -> str:
        return self.served.names[0]

    def set_weight(self, tenant_id: str, weight: float) -> None:
        """A tenant's share."""
        self.scheduler.set_weight(tenant_id, weight)
        self.trainer.set_weight(tenant_id, weight)


class Bases:
    """The first is the default. Keeps no state of requests: a name says which base model is meant."""

    def __init__(self, bases: Sequence[Base]) -> None:
        self._bases = tuple(bases)
        self._by_name = {name: base for base in bases for name in base.served.names}

    def __iter__(self) -> Iterator[Base]:
        return iter(self._bases)

    @property
    def default(self) -> Base:
        return self._bases[0]

    @property
    def names(self) -> tuple[str, ...]:
        """All, aliases too."""
        return tuple(self._by_name)

    def of(self, name: str) -> Base:
        """Raises ServiceError if no base model has this name."""
        if name not in self._by_name:
            raise not_served(name, self.names)
        return self._by_name[name]

    def of_stored(self, name: str) -> Base:
        """Of a name that was served once: one that is served no more is an alias of a server with one base model."""
        return self._by_name.get(name, self.default)

    def check_same(self, checkpoint: str, stored: str, wanted: str) -> None:
        """Raises ServiceError unless both names, that of a checkpoint's base model and that of another, mean the same."""
        if self.of_stored(stored) is not self.of_stored(wanted):
            raise ServiceError(
                f"checkpoint {checkpoint} is of base model {stored!r}, and cannot be loaded on {wanted!r}.",
                "Create a model on the checkpoint's own base.",
            )

    async def start(self) -> dict[str, Ready]:
        """All at once; what each has told, by its own name. Raises what the first of them failed with."""
        results = await all_of([base.backend.start() for base in self._bases])
        for base in self._bases:
            base.trainer.send_weights()
        return {base.name: one for base, one in zip(self._bases, results, strict=True)}

    async def close(self) -> None:
        await all_of([base.backend.close() for base in self._bases])

    def engine_samples(self) -> Iterator[tuple[str, EngineSample]]:
        """The latest of each engine, with its base model."""
        return ((base.name, sample) for base in self._bases for sample in base.backend.deployment.engine_samples)

    @property
    def aliases_warning(self) -> str | None:
        """For whoever opens a session: its model's name need not be its model."""
        return " ".join(filter(None, (base.served.aliases_warning for base in self))) or None
