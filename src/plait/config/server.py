"""`plait serve`: base models, offered to many clients."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from plait.config.base import Settings
from plait.config.run import (
    EngineSettings,
    FurtherModelSettings,
    ModelName,
    ModelSettings,
    TrainingSettings,
    WorkerSettings,
    check_model_names,
)
from plait.types.policy import Training

Seconds = Annotated[float, Field(gt=0)]


class ServerLoraSettings(Settings):
    """Of the adapters that clients create. Rank, seed and layers are the client's choice."""

    alpha: Annotated[float, Field(gt=0)] = 32.0
    """An adapter's output is scaled by alpha / rank."""
    max_rank: Annotated[int, Field(ge=1, le=512)] = 128
    """Highest rank that a client may ask for."""
    max_resident: Annotated[int, Field(ge=1)] = 32
    """Adapters of one base model that are on its trainers at one time; for another one the longest idle is put away, whose state
    stays on disk."""


class ServerFullSettings(Settings):
    """Of the models whose weights are all trained: `user_metadata={"plait_training": "full"}`, or `training = "full"` in a task."""

    max_resident: Annotated[int, Field(ge=0)] = 1
    """Such models of SDK clients that the trainer holds at one time, about 22 bytes for each parameter of the base; for another
    one the longest idle is put away. Also the most tasks of this kind in one file. 0: none are served."""


class SessionSettings(Settings):
    heartbeat_timeout_s: Annotated[float, Field(ge=30)] = 120.0
    """Without a heartbeat (due every 10 s) for so long, a session is over: its adapters leave the device, their state stays."""


class SampleSettings(Settings):
    max_waiting: Annotated[int, Field(ge=1)] = 4096
    """Samples waiting in the server; further ones are answered 429, and the SDK sends them again."""
    result_retention_s: Seconds = 900.0
    """A result that nobody fetched is kept for so long, then answered 410; the SDK samples again."""
    retrieve_grace_s: Seconds = 60.0
    """A result that was fetched is kept for so long, in case the answer was lost."""


class OperationSettings(Settings):
    poll_s: Annotated[float, Field(gt=0, lt=40)] = 30.0
    """A request for a result is held open for so long before it is answered "not yet". The SDK gives up at 45 s."""
    result_retention_s: Seconds = 86400.0
    """Results of training operations are kept for so long."""


class QuotaSettings(Settings):
    """Of each tenant that has none of its own. An absent quota is unlimited."""

    live_adapters: Annotated[int, Field(ge=1)] | None = 16
    """Models open at once."""
    stored_bytes: Annotated[int, Field(ge=1)] | None = None
    """Checkpoints, unnamed samplers, uploads and managed runs."""
    tokens_per_minute: Annotated[int, Field(ge=1)] | None = None
    """Prompt, sampled and trained tokens together."""
    concurrent_samples: Annotated[int, Field(ge=1)] | None = 2048
    """Samples waiting or running; the SDK keeps at most 2000 under way."""


class ServedModelSettings(FurtherModelSettings):
    aliases: tuple[ModelName, ...] = ()
    """Further names under which clients find it."""


class ServerSettings(Settings):
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Address to listen on. Any but a loopback address needs keys."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8400
    """0: any free port."""
    data_folder: Annotated[Path, Field(validate_default=False)] = Path("plait-data")
    """Adapters, checkpoints, uploads, managed runs and, unless `database_url` names another, the database."""
    database_url: str = ""
    """"postgresql://user:password@host/name" or "sqlite:////path/to/file"; empty: SQLite in the data folder."""
    aliases: tuple[ModelName, ...] = ()
    """Further names under which clients find the first model, such as "Qwen/Qwen3-8B"."""
    strict_policy: Literal["recorded", "strict"] = "recorded"
    """What is done about tokens of an older policy version in SDK clients' training data: "recorded" measures, "strict" refuses."""
    environments: tuple[Literal["reasoning_gym", "dataset", "calculator"], ...] = ("reasoning_gym", "dataset", "calculator")
    """Kinds of environments that tasks sent over HTTP may use. Code never comes over HTTP."""
    log_format: Literal["text", "json"] = "text"
    """"json" writes one object a line to standard error, and every request; "text" is for reading, and tells what went wrong."""
    metrics_access: Literal["loopback", "key", "open"] = "loopback"
    """Who may read /metrics: "loopback" asks others than this machine for an admin key, "key" asks everybody, "open" nobody."""
    stop_timeout_s: Annotated[float, Field(ge=0, le=3600)] = 20.0
    """After SIGTERM calls and samples under way may go on for so long. New ones are answered 503 meanwhile."""
    model: ModelSettings = ModelSettings()
    """The first base model: managed tasks that name none train it."""
    models: tuple[ServedModelSettings, ...] = ()
    """Further base models, each with workers of its own unless `workers.layout` is "multiplexed"."""
    workers: WorkerSettings = WorkerSettings()
    engine: EngineSettings = EngineSettings()
    training: TrainingSettings = TrainingSettings()
    lora: ServerLoraSettings = ServerLoraSettings()
    full: ServerFullSettings = ServerFullSettings()
    sessions: SessionSettings = SessionSettings()
    samples: SampleSettings = SampleSettings()
    operations: OperationSettings = OperationSettings()
    quotas: QuotaSettings = QuotaSettings()

    @property
    def max_resident(self) -> dict[Training, int]:
        """Models of SDK clients on the trainer at one time, by what they train."""
        return {"lora": self.lora.max_resident, "full": self.full.max_resident}

    @model_validator(mode="after")
    def _names_differ(self) -> "ServerSettings":
        for field, names in (("aliases", self.aliases), ("environments", self.environments)):
            if repeated := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f'{field} has "{repeated[0]}" {names.count(repeated[0])} times: name it once')
        check_model_names([name for names in self.model_names for name in names])
        return self

    @property
    def max_lora_rank(self) -> int:
        return self.lora.max_rank

    @property
    def train_ranks(self) -> int:
        return self.workers.train_ranks

    @property
    def model_names(self) -> tuple[tuple[str, ...], ...]:
        """Of each base model: its own name, then its aliases."""
        return (self.model.known_as, *self.aliases), *((model.name, *model.aliases) for model in self.models)

    def of_model(self, name: str) -> "ServerSettings":
        """As if the server had only this base model; `name` is its own."""
        for model in self.models:
            if model.name == name:
                engine = self.engine if model.engine is None else model.engine
                changes = {"model": model.shape, "aliases": model.aliases, "workers": model.own_workers(self.workers)}
                return self.model_copy(update={**changes, "engine": engine, "models": ()})
        return self.model_copy(update={"models": ()})

    @property
    def sqlalchemy_url(self) -> str:
        """Where the database is, password included."""
        return self.database_url or f"sqlite:///{self.data_folder / 'plait.db'}"
