"""What controller and workers say to each other. Small: tensors go through files, never through messages."""

import msgspec

from plait.cluster.model_messages import CallDone, CallFailed, ModelMessage, ModelOpened, PromptScored, ScorePrompt
from plait.drafting.draft import DraftIncrement
from plait.kv.block_log import BlockNews
from plait.kv.plan import TierPlan
from plait.observe.events import StepCommitted
from plait.transport import Codec
from plait.types.chunks import Chunk, ChunkResult
from plait.types.datum import Datum
from plait.types.policy import AdapterRef

ROLLOUT, TRAIN = "rollout", "train"


class Configure(msgspec.Struct, frozen=True, tag="configure", kw_only=True):
    """The first message to a worker."""

    name: str
    roles: tuple[str, ...]
    deployment: str = ""
    """The base model's name, where there are several."""
    model_path: str
    dtype: str
    device: str
    threads: int
    max_context_tokens: int
    max_rows: int
    slot_tokens: int
    pool_tokens: int
    batch_invariant: str
    micro_batch_tokens: int
    checkpoint_layers: bool
    num_tasks: int
    train_ranks: int = 1
    """Processes, this one among them, over which tasks that train all weights are sharded."""
    rank_timeout_s: float = 600.0
    """A rank for which another waits so long hangs."""
    full_policies: int = 2
    """Most models of tasks that train all weights, held for rollout at one time."""
    lend_threads: bool = True
    """Not for the worker: whether its threads are lent, or others' to it."""
    tiers: TierPlan | None = None
    """Of cache, below the engine's own."""
    engine_kind: str = "plait"
    python: str = ""
    """Interpreter of the worker; empty: the controller's."""
    max_lora_rank: int = 64
    """Highest that rollouts will meet; vLLM lays its memory out for it."""
    drafting: str = "off"
    draft_paths: int = 1
    """Of a row's draft, in the tail."""
    draft_history: bool = False
    """Answers of earlier steps to the same prompt are drafted from too."""
    answers_folder: str = ""
    """Where workers of this controller on one machine keep what each would otherwise test for itself; empty: nowhere."""
    has_siblings: bool = False
    """There are other engines, which are to hear what is drawn here if there is drafting."""
    tells_blocks: bool = False
    """The controller is to hear which blocks of cache come and go."""


class SubmitChunks(msgspec.Struct, frozen=True, tag="submit"):
    chunks: tuple[Chunk, ...]


class CancelRequests(msgspec.Struct, frozen=True, tag="cancel"):
    request_ids: tuple[str, ...]


class EndStretches(msgspec.Struct, frozen=True, tag="end_stretches"):
    """Chunks that were submitted before keep to their budgets from now on."""


class ReleaseCaches(msgspec.Struct, frozen=True, tag="release"):
    handles: tuple[str, ...]
    went_on: bool = False
    """Later chunks have gone on from them, here or elsewhere."""


class OpenTask(msgspec.Struct, frozen=True, tag="open_task"):
    """Take a task up from its latest valid record, or make its pristine version 0."""

    tenant: str
    settings_json: str
    steps_folder: str
    keep_every_steps: int
    key: str = ""
    """What all messages of this task call it, where tasks of other runs may have its name; empty: its name."""


class Update(msgspec.Struct, frozen=True, tag="update"):
    """Train one step and make it durable. Without datums the step changes nothing but the version."""

    task: str
    datums: tuple[Datum, ...]
    learning_rate: float
    data_cursor: int
    event: StepCommitted
    """What the controller knows of the step; the worker fills in the rest."""
    ready_s: float
    """When the batch was complete."""
    protected_steps: tuple[int, ...] = ()


class CloseTask(msgspec.Struct, frozen=True, tag="close_task"):
    task: str


class AdapterClosed(msgspec.Struct, frozen=True, tag="adapter_closed"):
    """The answer to CloseTask and CloseModel: the process has let go of the records of the task or model `name`."""

    name: str


class SetTenantWeight(msgspec.Struct, frozen=True, tag="set_tenant_weight"):
    """A tenant's share of the trainer, against others that wait too; 1 unless it is set. Forgotten when the worker is lost."""

    tenant: str
    weight: float


class ShareTokens(msgspec.Struct, frozen=True, tag="share_tokens"):
    """What siblings elsewhere have drawn, for drafts; and groups of which nothing more will come."""

    increments: tuple[DraftIncrement, ...]
    ended_groups: tuple[str, ...] = ()


class SetThreads(msgspec.Struct, frozen=True, tag="set_threads"):
    threads: int


ToWorker = (
    Configure
    | SubmitChunks
    | CancelRequests
    | ReleaseCaches
    | EndStretches
    | ScorePrompt
    | OpenTask
    | Update
    | CloseTask
    | ModelMessage
    | SetTenantWeight
    | ShareTokens
    | SetThreads
)


class Starting(msgspec.Struct, frozen=True, tag="starting"):
    """What a worker does before it is ready, in the order of doing."""

    what: str
    """Empty: nothing more, Ready or StartFailed comes next."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    base_digest: str
    batch_invariant: bool
    invariance_detail: str
    device: str
    load_s: float


class StartFailed(msgspec.Struct, frozen=True, tag="start_failed"):
    """Settings and machine do not fit; the process ends."""

    message: str
    remedy: str


class ChunksDone(msgspec.Struct, frozen=True, tag="chunks_done"):
    results: tuple[ChunkResult, ...]
    news: tuple[BlockNews, ...] = ()
    """Of the engine's caches: what these chunks and others have left there or made room with."""


class TaskOpened(msgspec.Struct, frozen=True, tag="task_opened"):
    task: str
    ref: AdapterRef
    data_cursor: int
    event: StepCommitted | None = None
    """The event of the latest step; None of version 0."""
    damage: tuple[str, ...] = ()


class UpdateDone(msgspec.Struct, frozen=True, tag="update_done"):
    task: str
    ref: AdapterRef
    event: StepCommitted


class JobFailed(msgspec.Struct, frozen=True, tag="job_failed"):
    """A training call failed; its task ends alone."""

    task: str
    error: str


class Busy(msgspec.Struct, frozen=True, tag="busy"):
    """The worker worked from `start_s` to `end_s` (seconds since the epoch). `task` may be a model's id."""

    start_s: float
    end_s: float
    num_tokens: int
    task: str = ""
    num_rows: int = 0
    """Most generations decoded at once in the span."""


class EngineStats(msgspec.Struct, frozen=True, tag="engine_stats"):
    """How an engine stands: about once a second while it works, and when it goes idle."""

    time_s: float
    num_rows: int
    """Generations that it decodes, or whose prompts it computes."""
    num_waiting: int
    """Chunks that it was given and has not begun."""
    counters: dict[str, float] = {}
    """Totals since the worker started, by the names of `observe.engine_counters` and any others."""
    news: tuple[BlockNews, ...] = ()


class TokensDrawn(msgspec.Struct, frozen=True, tag="tokens_drawn"):
    """For siblings on other engines."""

    increments: tuple[DraftIncrement, ...]


FromWorker = (
    Starting
    | Ready
    | StartFailed
    | ChunksDone
    | PromptScored
    | TaskOpened
    | UpdateDone
    | JobFailed
    | AdapterClosed
    | ModelOpened
    | CallDone
    | CallFailed
    | Busy
    | EngineStats
    | TokensDrawn
)

to_worker: Codec[ToWorker] = Codec(ToWorker)
from_worker: Codec[FromWorker] = Codec(FromWorker)
