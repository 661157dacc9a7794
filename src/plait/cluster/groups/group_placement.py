"""At which of several equal worker groups each job runs: a base model with all of its deployments. Pure, the clock passed in.

- A job that is new starts at the group with the most room left (cold start).
- Once the trace of its calls has told a profile, `placement.Placer` decides, under a policy and the job's bound on slowdown; and
  again when the profile drifts. Who is admitted nowhere stays where it is, and is tried again with its next profile.
- What happens becomes questions to the placer, which are answered in order. One may be answered in a thread, while the next things
  happen: of a job that left meanwhile, or that stays where it is, answers to what was asked before count no more.
- To the placer a group is a node of one device. Which of its nodes is which group is settled only when one comes to be used: then
  it is the group where that job runs already, if it can be.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from plait.cluster.groups.placer_question import Answer, Question
from plait.placement.decision import Action, Decision
from plait.placement.drift import DriftSettings
from plait.placement.job import DEFAULT_SLO, Job, Pool, Role
from plait.placement.job_profile import JobProfile
from plait.placement.placer import Placer
from plait.placement.policies import Isolated, Pack, Spread, SpreadBackfill
from plait.placement.resource_view import UNLIMITED, Bytes, Node

POLICIES: dict[str, type[Placer]] = {"pack": Pack, "spread": Spread, "spread_backfill": SpreadBackfill, "isolated": Isolated}


@dataclass(slots=True)
class PlacedHere:
    group: str
    num_bytes: int
    """Expected on the device, all of its deployments together."""
    slo: float
    is_placed: bool = False
    """By the placer; else it is where it started, or where it was last."""
    slowdown: float = 1.0
    """That the placer expects."""
    since: int = 0
    """Number of the first question whose answer counts for it."""


class GroupPlacement:
    """`jobs` says where each is to be."""

    def __init__(
        self, groups: Sequence[str], device_bytes: int = UNLIMITED, host_bytes: int | None = None, policy: str = "spread",
        drift: DriftSettings | None = None,
    ) -> None:  # fmt: skip
        self.groups, self._device_bytes = tuple(groups), device_bytes
        memory = Bytes(device_bytes, UNLIMITED if host_bytes is None else host_bytes, UNLIMITED)
        self.placer = POLICIES[policy]([Node(f"slot {n}", "groups", 1, memory) for n in range(len(groups))], drift)
        self.jobs: dict[str, PlacedHere] = {}
        self._questions: deque[Question] = deque()
        self._num_asked = 0
        self._groups_of_nodes: dict[str, str] = {}

    def arrive(self, job: str, num_bytes: int, slo: float = DEFAULT_SLO) -> str:
        """Where it starts."""
        used = {name: self._used_bytes(name) for name in self.groups}
        group = min(self.groups, key=lambda name: (used[name] + num_bytes > self._device_bytes, used[name]))
        self.jobs[job] = PlacedHere(group, num_bytes, slo, since=self._num_asked)
        return group

    def leave(self, job: str, now_s: float) -> None:
        if self.jobs.pop(job, None) is not None and self._num_asked:
            self._ask(Question.of_end(job, now_s))

    def stay(self, job: str, group: str, now_s: float) -> None:
        """It could not be brought to where it was to be, and is there, unless it has left."""
        here = self.jobs.get(job)
        if here is None:
            return
        self._ask(Question.of_end(job, now_s))
        here.group, here.is_placed, here.slowdown, here.since = group, False, 1.0, self._num_asked

    def profiled(self, job: str, profile: JobProfile, anchor_s: float, num_bytes: int, switch_s: float, now_s: float) -> None:
        """What its trace tells: a period began at `anchor_s`. Bringing it to the device takes `switch_s`."""
        here = self.jobs[job]
        here.num_bytes = num_bytes or here.num_bytes
        pool = Pool((Role.ROLLOUT, Role.TRAIN), 1, min(here.num_bytes, self._device_bytes), switch_s)
        self._ask(Question.of_profile(Job(job, job, (pool,), here.slo), profile, anchor_s, now_s))

    # ---- questions and answers

    def _ask(self, question: Question) -> None:
        self._questions.append(question)
        self._num_asked += 1

    def next_question(self) -> Callable[[], Answer] | None:
        """To be called, in any thread, and its answer to be taken before the next is asked for; None: nothing is open."""
        while self._questions:
            number, question = self._num_asked - len(self._questions), self._questions.popleft()
            here = self.jobs.get(question.job_id)
            if question.is_end or (here is not None and here.since <= number):
                return partial(question.answer, self.placer, number)
        return None

    def settle(self) -> None:
        """Whatever is open, in this thread."""
        while (question := self.next_question()) is not None:
            self.take(question())

    def take(self, answer: Answer) -> None:
        """Of a job the last decision counts: one that has to leave its place may get it, or another, at once."""
        self._groups_of_nodes = {node: name for node, name in self._groups_of_nodes.items() if node in answer.nodes_in_use}
        for decision in answer.decisions:
            for job, slowdown in decision.slowdowns.items():
                if (here := self._heeding(job, answer)) is not None:
                    here.slowdown = slowdown
        for job, decision in {decision.job_id: decision for decision in answer.decisions}.items():
            if (here := self._heeding(job, answer)) is not None:
                self._carry_out(decision, here)

    def _heeding(self, job: str, answer: Answer) -> PlacedHere | None:
        here = self.jobs.get(job)
        return here if here is not None and here.since <= answer.number else None

    def _carry_out(self, decision: Decision, here: PlacedHere) -> None:
        if decision.action in (Action.PLACED, Action.MOVED):
            here.is_placed, here.group = True, self._group_at(decision, here.group)
        else:
            here.is_placed, here.slowdown = False, 1.0

    def _group_at(self, decision: Decision, group: str) -> str:
        """Of the node that the placer has chosen; `group`: where the job is."""
        node = decision.pools[0].slices[0].node_id
        if node not in self._groups_of_nodes:
            free = [name for name in self.groups if name not in self._groups_of_nodes.values()]
            self._groups_of_nodes[node] = group if group in free else min(free, key=self._used_bytes)
        return self._groups_of_nodes[node]

    def _used_bytes(self, group: str) -> int:
        return sum(here.num_bytes for here in self.jobs.values() if here.group == group)
