"""What a placer is asked about one job, and what it answers. Pure: it changes the placer, and reads nothing else."""

from dataclasses import dataclass

from plait.placement.decision import Action, Decision
from plait.placement.job import Job
from plait.placement.job_profile import JobProfile
from plait.placement.placer import Placer


@dataclass(frozen=True, slots=True)
class Answer:
    number: int
    """Of the question."""
    decisions: list[Decision]
    nodes_in_use: frozenset[str]
    """Once all of them are carried out."""


@dataclass(frozen=True, slots=True)
class Question:
    job_id: str
    now_s: float
    job: Job | None = None
    profile: JobProfile | None = None
    anchor_s: float = 0.0

    @classmethod
    def of_end(cls, job_id: str, now_s: float) -> "Question":
        """It is no more to be placed."""
        return cls(job_id, now_s)

    @classmethod
    def of_profile(cls, job: Job, profile: JobProfile, anchor_s: float, now_s: float) -> "Question":
        """What its trace tells, whether it is placed or new to the placer."""
        return cls(job.job_id, now_s, job, profile, anchor_s)

    @property
    def is_end(self) -> bool:
        return self.job is None

    def answer(self, placer: Placer, number: int) -> Answer:
        decisions = _without_queue(placer, self._decisions(placer), self.now_s)
        in_use = {part.node_id for each in placer.groups.groups.values() for part in each.slices}
        return Answer(number, decisions, frozenset(in_use))

    def _decisions(self, placer: Placer) -> list[Decision]:
        is_placed = self.job_id in placer.groups.jobs
        if self.job is None or self.profile is None:
            return placer.job_ended(self.job_id, self.now_s) if is_placed else []
        if is_placed:
            return placer.profile_updated(self.job_id, self.profile, self.now_s, self.anchor_s)
        placer.profiles[self.job_id] = self.profile
        return [placer.submit(self.job, self.now_s)]


def _without_queue(placer: Placer, decisions: list[Decision], now_s: float) -> list[Decision]:
    """Nobody waits: who is placed nowhere runs where it is."""
    for job_id, last in {decision.job_id: decision for decision in decisions}.items():
        if last.action is Action.QUEUED:
            decisions = decisions + _without_queue(placer, placer.job_ended(job_id, now_s), now_s)
    return decisions
