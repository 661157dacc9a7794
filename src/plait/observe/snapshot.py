"""What a run looks like at one moment. Absent measurements are None, never zero. Times are in seconds."""

import msgspec


class TaskSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    task: str
    model: str = ""
    """Name of its base model, where the run has several."""
    state: str
    """As the task manager names it; "pending" before its first event."""
    phase: str
    """What the task does now, as far as its ended phases tell; empty before the first has ended and when the task has."""
    cause: str
    """Why it failed or was stopped."""
    policy_version: int
    step: int
    total_steps: int | None
    warm_start_steps: int
    reward_last: float | None
    reward_best: float | None
    rewards: tuple[float, ...]
    """Mean rewards of the latest steps, oldest first."""
    accuracy_before: float | None
    accuracy_last: float | None
    accuracy_best: float | None
    tokens_per_s: float | None
    """Sampled tokens of the latest steps over the time they took."""
    num_errors: int
    last_error: str
    time_to_first_step_s: float | None
    phase_s: dict[str, float]
    """Time spent in each phase."""
    remaining_s: float | None


class IdleSpan(msgspec.Struct, frozen=True):
    start_s: float
    end_s: float


class WorkerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    worker: str
    is_lost: bool
    task: str
    """What its last busy span served; empty when it served several."""
    utilisation: float | None
    """Busy share of the time the run was up."""
    utilisation_recent: float | None
    """The same over the last `UTILISATION_WINDOW_S`."""
    tokens_per_s: float | None
    busy_s: float
    idle_s: float
    """Idle since the last busy span; 0 while nothing is known to be idle."""
    num_idle_spans: int
    longest_idle_s: float
    idle_spans: tuple[IdleSpan, ...]
    """The latest ones."""


class EngineSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Totals are over the whole run; the state is that of the engine's latest report."""

    engine: str
    idle_share: float | None
    """Of the time the run was up."""
    idle_share_recent: float | None
    num_rows: int
    num_queued: int
    """Generations that wait for any engine."""
    reserved_share: float | None
    """Of its cache, for the chunks that it has."""
    reserved_share_mean: float | None
    """Over its reports while it had chunks."""
    num_moves: int
    """Generations that went on here after another engine had them."""
    hit_share: float | None
    """Share of the context tokens that came from a cache."""
    hit_shares: dict[str, float]
    """The same by tier, where it is not zero."""
    acceptance: float | None
    """Share of the drafted tokens that were drawn."""
    draft_length: float | None
    counters: dict[str, float]


class GroupSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Totals are over the whole run; the deployments are those of the group's latest report."""

    group: str
    deployments: tuple[str, ...]
    busy_share: float | None
    """Of the time the run was up."""
    busy_share_recent: float | None
    """Between its two latest reports."""
    num_calls: int
    num_switches: int
    num_moves: int
    """Base models that came here from another group."""


class NoteCount(msgspec.Struct, frozen=True):
    level: str
    message: str
    task: str
    count: int


class RunSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    model: str
    device: str
    dtype: str
    status: str
    """"pending", "running", "done", "failed" or "interrupted"."""
    process_id: int
    num_starts: int
    started_s: float | None
    active_s: float
    """Time the run was up, without the gaps between an interruption and the resume."""
    steps: int
    steps_per_hour: float | None
    time_to_first_step_s: float | None
    remaining_s: float | None
    tasks: tuple[TaskSnapshot, ...]
    workers: tuple[WorkerSnapshot, ...]
    engines: tuple[EngineSnapshot, ...]
    groups: tuple[GroupSnapshot, ...]
    """Of workers, where the layout is "multiplexed"."""
    notes: tuple[NoteCount, ...]
