"""The events of a run: the one truth that status, report and trackers are derived from.

Times are seconds since the epoch. An absent measurement is None, never zero.
Events with the same `key()` mean the same fact; a reader keeps the last one.
"""

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=True, omit_defaults=True):
    time_s: float


class RunStarted(Event, frozen=True, kw_only=True, tag="run_started"):
    run: str
    model: str
    dtype: str
    device: str
    tasks: tuple[str, ...]
    workers: tuple[str, ...]
    batch_invariant: bool
    plait_version: str
    process_id: int = 0
    resumed: bool = False
    total_steps: dict[str, int] = {}
    """Optimizer steps planned per task, warm start included; a task without an entry has no known end."""
    task_models: dict[str, str] = {}
    """Name of each task's base model, where there are several; `model` lists them then."""


class RunEnded(Event, frozen=True, kw_only=True, tag="run_ended"):
    status: str
    """"done", "failed" or "interrupted"."""


class TaskStateChanged(Event, frozen=True, kw_only=True, tag="task_state"):
    task: str
    state: str
    cause: str = ""


class PhaseSpan(Event, frozen=True, kw_only=True, tag="phase"):
    """A task was in `phase` from `start_s` to `time_s`.

    Phases: "rollout", "environment", "queued", "training", "evaluation", "warm_start".
    """

    task: str
    phase: str
    step: int
    start_s: float


class WorkerSpan(Event, frozen=True, kw_only=True, tag="worker"):
    """Worker `worker` was busy from `start_s` to `time_s`; in between spans it was idle."""

    worker: str
    start_s: float
    task: str = ""
    """Set where the span served one task alone (training)."""
    num_tokens: int = 0


class EngineSample(Event, frozen=True, kw_only=True, tag="engine"):
    """How rollout engine `engine` (its worker's name) stood: every few seconds while it works, and when it goes idle."""

    engine: str
    num_rows: int
    num_waiting: int = 0
    """Chunks that it was given and has not begun."""
    num_queued: int = 0
    """Generations that wait for any engine."""
    reserved_tokens: int
    """Of its cache, for the chunks that it has."""
    cache_tokens: int
    num_moves: int = 0
    """Generations that went on here after another engine had their last chunk, since the run came up."""
    counters: dict[str, float] = {}
    """Totals since its process started: `engine_counters`."""


class GroupSample(Event, frozen=True, kw_only=True, tag="group"):
    """How worker group `group` stood. Totals are since the controller came up, `up_s` ago."""

    group: str
    deployments: tuple[str, ...]
    """`MODEL/ROLE` of each that was there."""
    up_s: float
    busy_s: float
    """While a function call ran, or its deployment was brought onto the device."""
    num_calls: int
    num_switches: int
    num_moves: int = 0
    """Base models that came here from another group."""


class JobMoved(Event, frozen=True, kw_only=True, tag="job_moved"):
    """Base model `job`, with all of its deployments, went on at another worker group."""

    job: str
    source: str
    target: str


class StepCommitted(Event, frozen=True, kw_only=True, tag="step"):
    """Optimizer step `step` of `task` is durable: policy version `step` exists. Step numbers start at 1."""

    task: str
    step: int
    phase: str = "rl"
    """"warm_start" or "rl"."""
    adapter_digest: str
    reward_mean: float | None = None
    reward_std: float | None = None
    loss: float
    grad_norm: float
    learning_rate: float
    num_sequences: int
    num_trained_tokens: int
    num_sampled_tokens: int | None = None
    num_groups_without_gradient: int = 0
    num_dropped_groups: int = 0
    kl_to_base: float | None = None
    ratio_mean: float | None = None
    """Mean of exp(trainer - sampler log-probability) before the update; exactly 1 on-policy with batch invariance."""
    logprob_gap_max: float | None = None
    """Largest absolute trainer - sampler log-probability difference before the update, in nats."""
    staleness_mean: float | None = None
    """Mean age of the sampled tokens, in policy versions."""
    rollout_s: float | None = None
    tail_s: float | None = None
    """From the end of nine tenths of the step's generations to the end of the last."""
    environment_s: float | None = None
    queued_s: float | None = None
    training_s: float | None = None
    stop_counts: dict[str, int] = {}
    environment_metrics: dict[str, float] = {}


class EvaluationDone(Event, frozen=True, kw_only=True, tag="evaluation"):
    task: str
    version: int
    accuracy: float
    """Mean reward over the questions, in [0, 1] for the shipped environments."""
    num_questions: int
    num_errors: int = 0
    when: str = "periodic"
    """"before", "periodic" or "after"."""


class RewardError(Event, frozen=True, kw_only=True, tag="reward_error"):
    task: str
    step: int
    example_id: str
    stage: str
    """"setup", "turn", "score" or "cleanup"."""
    error: str


class WorkerLost(Event, frozen=True, kw_only=True, tag="worker_lost"):
    worker: str
    cause: str


class Note(Event, frozen=True, kw_only=True, tag="note"):
    """Something a person should know; `level` is "info" or "warning"."""

    level: str
    message: str
    task: str = ""


AnyEvent = (
    RunStarted
    | RunEnded
    | TaskStateChanged
    | PhaseSpan
    | WorkerSpan
    | EngineSample
    | GroupSample
    | JobMoved
    | StepCommitted
    | EvaluationDone
    | RewardError
    | WorkerLost
    | Note
)

decode_event = msgspec.json.Decoder(AnyEvent).decode
encode_event = msgspec.json.Encoder().encode
