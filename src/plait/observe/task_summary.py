"""What one task has done so far, folded from its events. No clock inside; bounded memory."""

from collections import deque

from plait.observe.events import EvaluationDone, PhaseSpan, RewardError, StepCommitted, TaskStateChanged
from plait.observe.meters import TokenRate
from plait.observe.snapshot import TaskSnapshot

PHASES = ("warm_start", "rollout", "environment", "queued", "training", "evaluation")
TERMINAL_STATES = frozenset({"done", "failed", "cancelled"})

FOLLOWING_PHASE = {
    "rollout": "queued",
    "environment": "queued",
    "queued": "training",
    "training": "rollout",
    "warm_start": "rollout",
    "evaluation": "rollout",
}
"""Spans are told when they end; what a running task does now is what follows the phase that ended last."""

MAX_REWARDS = 64
"""How many of the latest rewards are kept for the small curve."""

NUM_INTERVALS = 8
"""The remaining time is estimated from so many of the latest steps."""


class TaskSummary:
    """Counts each (step, phase) once, however often its event was written; the last one's numbers hold."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.state, self.cause, self.phase = "pending", "", ""
        self.step = 0
        self.total_steps: int | None = None
        self.warm_start_steps = 0
        self.phase_s: dict[str, float] = {}
        self.num_errors = 0
        self.last_error = ""
        self.first_step_s: float | None = None
        self._rewards: deque[tuple[int, float]] = deque(maxlen=MAX_REWARDS)
        self._reward_best: float | None = None
        self._accuracy_before: float | None = None
        self._accuracy_last: float | None = None
        self._accuracy_best: float | None = None
        self._rate = TokenRate()
        self._intervals_s: deque[float] = deque(maxlen=NUM_INTERVALS)
        self._latest_s = 0.0

    @property
    def tokens_per_s(self) -> float | None:
        return self._rate.tokens_per_s

    @property
    def has_ended(self) -> bool:
        return self.state in TERMINAL_STATES

    def start(self, now_s: float) -> None:
        """The run comes up, for the first time or again."""
        self._rate.start(now_s)
        self._latest_s = now_s
        if not self.has_ended:
            self.state, self.phase = "pending", ""

    def change_state(self, event: TaskStateChanged) -> None:
        self.state, self.cause = event.state, event.cause
        if self.has_ended:
            self.phase = ""

    def add_phase(self, event: PhaseSpan) -> None:
        self.phase_s[event.phase] = self.phase_s.get(event.phase, 0.0) + max(0.0, event.time_s - event.start_s)
        if not self.has_ended:
            self.phase = self._following(event)

    def _following(self, event: PhaseSpan) -> str:
        following = FOLLOWING_PHASE.get(event.phase, event.phase)
        is_last_step = self.total_steps is not None and event.step >= self.total_steps
        return "evaluation" if following == "rollout" and is_last_step else following

    def add_step(self, event: StepCommitted) -> bool:
        """Take a step in; True if it was not known before."""
        is_new = event.step > self.step
        if event.reward_mean is not None:
            self._add_reward(event.step, event.reward_mean)
        if is_new:
            self._count_step(event)
        return is_new

    def _count_step(self, event: StepCommitted) -> None:
        self.step = event.step
        self.first_step_s = event.time_s if self.first_step_s is None else self.first_step_s
        if event.phase == "warm_start":
            self.warm_start_steps += 1
        if event.num_sampled_tokens is not None:
            self._rate.add(event.time_s, event.num_sampled_tokens)
        self._intervals_s.append(max(0.0, event.time_s - self._latest_s))
        self._latest_s = event.time_s

    def _add_reward(self, step: int, reward: float) -> None:
        kept = [(other, value) for other, value in self._rewards if other != step]
        self._rewards = deque([*kept, (step, reward)], maxlen=MAX_REWARDS)
        self._reward_best = reward if self._reward_best is None else max(self._reward_best, reward)

    def add_evaluation(self, event: EvaluationDone) -> None:
        if event.when == "before":
            self._accuracy_before = event.accuracy
        self._accuracy_last = event.accuracy
        self._accuracy_best = event.accuracy if self._accuracy_best is None else max(self._accuracy_best, event.accuracy)

    def add_error(self, event: RewardError) -> None:
        self.num_errors += 1
        self.last_error = f"step {event.step}, {event.stage}: {event.error}"

    def remaining_s(self, now_s: float) -> float | None:
        """The steps left at the pace of the latest ones, less what has passed since the last; None if there is no telling."""
        if self.has_ended:
            return 0.0
        if self.total_steps is None or not self._intervals_s:
            return None
        pace_s = sum(self._intervals_s) / len(self._intervals_s)
        return max(0.0, (self.total_steps - self.step) * pace_s - max(0.0, now_s - self._latest_s))

    def snapshot(self, now_s: float, run_started_s: float | None) -> TaskSnapshot:
        rewards = tuple(reward for _, reward in self._rewards)
        first_s = self.first_step_s
        return TaskSnapshot(
            task=self.task,
            state=self.state,
            phase=self.phase,
            cause=self.cause,
            policy_version=self.step,
            step=self.step,
            total_steps=self.total_steps,
            warm_start_steps=self.warm_start_steps,
            reward_last=rewards[-1] if rewards else None,
            reward_best=self._reward_best,
            rewards=rewards,
            accuracy_before=self._accuracy_before,
            accuracy_last=self._accuracy_last,
            accuracy_best=self._accuracy_best,
            tokens_per_s=self.tokens_per_s,
            num_errors=self.num_errors,
            last_error=self.last_error,
            time_to_first_step_s=None if first_s is None or run_started_s is None else first_s - run_started_s,
            phase_s=dict(self.phase_s),
            remaining_s=self.remaining_s(now_s),
        )
