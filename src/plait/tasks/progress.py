"""How far one task has come, and what it may start now. Pure.

- Each step starts once. Step n starts from the latest version: n-1, or with `max_staleness` as soon as n-1-max_staleness exists.
- RL starts only from the last version of the warm start, never from one before it.
- Every version that is due is evaluated once, also across restarts, as long as its record is kept.
- Where a score may end the task early, steps wait for the scores that are due. So a strict task's commands are a function of its
  plan and its scores alone: neither other tasks nor the speed of an evaluation can change which step is its last.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from plait.tasks.commands import Evaluate, RollOut, WarmStep
from plait.tasks.gate import check_policies
from plait.tasks.plan import TaskPlan
from plait.types.errors import PlaitError
from plait.types.policy import PolicyVersion

Start = Evaluate | WarmStep | RollOut


@dataclass(slots=True)
class TaskProgress:
    plan: TaskPlan
    version: int | None = None
    """Latest committed version; None until the task is opened."""
    last_started_step: int = 0
    stop_after: int | None = None
    """Early stopping: no step past this one is started."""
    collecting: dict[int, int] = field(default_factory=dict)
    """Step -> the version its batch is being collected with."""
    due: dict[int, str] = field(default_factory=dict)
    """Version -> why it is to be evaluated, before that has started."""
    evaluating: set[int] = field(default_factory=set)
    scores: dict[int, float] = field(default_factory=dict)
    """Version -> held-out accuracy; NaN if it could not be measured."""

    # ---- what is

    @property
    def last_step(self) -> int:
        return self.plan.total_steps if self.stop_after is None else self.stop_after

    @property
    def is_complete(self) -> bool:
        return self.version is not None and self.version >= self.last_step and not self.due and not self.evaluating

    def best_version(self) -> int | None:
        """The version of the best held-out accuracy, the earliest of equals."""
        known = {version: score for version, score in sorted(self.scores.items()) if not math.isnan(score)}
        return max(known, key=lambda version: known[version]) if known else None

    def protected_versions(self) -> tuple[int, ...]:
        """Versions whose records must stay: those that roll out, are or will be evaluated, and the best."""
        best = self.best_version()
        return tuple(sorted({*self.collecting.values(), *self.due, *self.evaluating, *(() if best is None else (best,))}))

    # ---- what happens

    def open(self, version: int, scores: Mapping[int, float], kept_versions: Collection[int]) -> None:
        """Go on from `version`. Scores of versions past it are void; those missing among `kept_versions` are made up for."""
        self.version = self.last_started_step = version
        self.scores = {v: score for v, score in scores.items() if v <= version}
        for kept in {version, *kept_versions}:
            if kept <= version:
                self._note_due(kept)
        self._judge()

    def collect(self, step: int, policies: Sequence[PolicyVersion]) -> None:
        """A step's batch is complete. Raise PlaitError if it was not asked for, PolicyError if it may not train."""
        if step not in self.collecting:
            raise PlaitError(f"step {step} of task {self.plan.name!r} has a batch that nobody asked for.", "A step trains once.")
        check_policies(policies, self.plan.policy(step - 1), self.plan.max_staleness, self.version)
        del self.collecting[step]

    def commit(self, step: int) -> None:
        """Step `step` is durable. Raise PlaitError if it does not follow the latest version."""
        if self.version is None or step != self.version + 1:
            raise PlaitError(
                f"step {step} of task {self.plan.name!r} was committed on version {self.version}.", "Steps follow each other."
            )
        self.version = step
        self._note_due(step)

    def score(self, version: int, accuracy: float) -> None:
        self.evaluating.discard(version)
        self.scores[version] = accuracy
        self._judge()

    def start(self) -> list[Start]:
        """What starts now."""
        name = self.plan.name
        started: list[Start] = [Evaluate(name, version, when) for version, when in sorted(self.due.items())]
        self.evaluating |= self.due.keys()
        self.due.clear()
        while self._may_start(self.last_started_step + 1):
            started.append(self._start_step())
        return started

    # ---- what follows

    def _start_step(self) -> WarmStep | RollOut:
        assert self.version is not None
        self.last_started_step += 1
        step = self.last_started_step
        self.collecting[step] = self.version
        return WarmStep(self.plan.name, step) if self.plan.is_warm(step) else RollOut(self.plan.name, step, self.version)

    def _may_start(self, step: int) -> bool:
        assert self.version is not None
        if step > self.last_step or (self.plan.stops_early and self._awaited_rl_versions()):
            return False
        num_ahead = step - 1 - self.version
        return num_ahead == 0 or (num_ahead <= self.plan.max_staleness and self.version >= self.plan.warm_steps)

    def _awaited_rl_versions(self) -> list[int]:
        """Versions whose score is due and could end the task."""
        return [version for version in (*self.due, *self.evaluating) if version > self.plan.warm_steps]

    def _note_due(self, version: int) -> None:
        when = self.plan.evaluation_due(version)
        if when is None and version == self.stop_after and self.plan.has_evaluation:
            when = "after"
        if when is not None and version not in self.scores and version not in self.evaluating:
            self.due[version] = when

    def _judge(self) -> None:
        """Early stopping: enough is reached, or the last evaluations brought no gain. Steps that have started still complete."""
        assert self.version is not None
        scores = self._rl_scores()  # Several may have become known at once, and each may have been the last that counts.
        if self.stop_after is None and any(self._is_enough(scores[:number]) for number in range(1, len(scores) + 1)):
            self.stop_after = min(self.plan.total_steps, max(self.last_started_step, self.version))
            self._note_due(self.version)

    def _rl_scores(self) -> list[float]:
        """In the order of versions, up to the first that is still awaited."""
        first_awaited = min(self._awaited_rl_versions(), default=math.inf)
        return [
            score
            for version, score in sorted(self.scores.items())
            if self.plan.warm_steps < version < first_awaited and not math.isnan(score)
        ]

    def _is_enough(self, scores: list[float]) -> bool:
        target, patience = self.plan.target_accuracy, self.plan.patience_evaluations
        if target is not None and scores and max(scores) >= target:
            return True
        if patience is None or len(scores) <= patience:
            return False
        return max(scores[-patience:]) <= max(scores[:-patience]) + self.plan.min_gain
