"""The waiting samples of one queue, in the order of Seer's context-aware scheduling (arXiv 2511.14617, algorithm 2). Pure.

- One sample of each group of unknown length is its probe. Probes go first, those that have drawn least before others.
- Then comes the group with the largest estimate; in a group, first come first served. A request without siblings is a group.
- Aging: what `patience` chunks of the queue were placed past is overdue, and at least every `aging_turn`-th chunk goes to whoever
  has waited longest, if that is overdue. So a sample with n before it that wait is served within
  `patience + aging_turn * (n + 1)` chunks of its queue.
- Each call takes O(log n), averaged over calls, plus O(k log n) for k candidates.
"""

from plait.rollout.group import Group, Sample
from plait.rollout.keyed_heap import KeyedHeap
from plait.rollout.length_estimates import EstimateErrors, LengthHistory
from plait.rollout.request import GenerationRequest


class ContextQueue:
    """Without `uses_context` it is first come first served, whatever the lengths."""

    def __init__(
        self, history: LengthHistory, errors: EstimateErrors, patience: int, aging_turn: int, uses_context: bool = True
    ) -> None:
        self.patience, self.aging_turn, self.uses_context = patience, aging_turn, uses_context
        self._history, self._errors = history, errors
        self._samples: dict[str, Sample] = {}
        """Those that wait."""
        self._groups: dict[str, Group] = {}
        self._probes: KeyedHeap[tuple[int, int]] = KeyedHeap()
        """Probes that wait, by (tokens drawn, number of arrival)."""
        self._largest: KeyedHeap[tuple[float, int]] = KeyedHeap()
        """Groups with other samples that wait, by (less the estimate, number of arrival)."""
        self._oldest: KeyedHeap[tuple[int, int]] = KeyedHeap()
        """All that wait, by (chunks placed before the wait began, number of arrival)."""
        self._num_placed = 0
        self._num_since_aged = 0

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def is_idle(self) -> bool:
        """Nothing waits or runs."""
        return not self._groups

    # ---- coming and going

    def join(self, request: GenerationRequest, number: int) -> Sample:
        """A new request, which does not wait yet."""
        name = request.group or f"\0{request.request_id}"
        group = self._groups.get(name) or self._new_group(name, request, number)
        group.members.add(request.request_id)
        group.most_tokens = max(group.most_tokens, request.sampling.max_new_tokens)
        group.longest_tokens = max(group.longest_tokens, len(request.tokens))
        return Sample(request, number, group)

    def _new_group(self, name: str, request: GenerationRequest, number: int) -> Group:
        policy = request.policy
        history_key = (policy.tenant, policy.task, hash(request.context_tokens))
        history = self._history.get(history_key)
        group = Group((policy.tenant, request.queue, name), number, not request.group, history_key, history)
        self._groups[name] = group
        return group

    def end(self, sample: Sample, is_finished: bool) -> Group | None:
        """A sample that does not wait leaves; returns its group if that has ended too."""
        group = sample.group
        group.members.discard(sample.request_id)
        if is_finished:
            self._learn(sample)
        if sample.request_id == group.probe or group.siblings.num:
            self._end_probing(group)
        self._rank(group)
        if group.members:
            return None
        self._history.add(group.history_key, group.siblings)
        del self._groups[group.key[2]]
        return group

    def _learn(self, sample: Sample) -> None:
        num_tokens = len(sample.request.tokens)
        sample.group.siblings.add(num_tokens)
        if sample.expected is not None:
            self._errors.add(num_tokens, *sample.expected)

    def _end_probing(self, group: Group) -> None:
        """The probe has told, or has gone; then another takes its place if it is needed."""
        former, group.probe = group.probe, ""
        if former in self._probes:
            self._probes.discard(former)
            group.waiting.put(former, (self._samples[former].number,))
        if group.needs_probe and self.uses_context and (heir := group.waiting.first()) is not None:
            group.waiting.discard(heir)
            self._make_probe(self._samples[heir])

    # ---- waiting

    def push(self, sample: Sample) -> None:
        """It waits for its next chunk."""
        group, request_id = sample.group, sample.request_id
        self._samples[request_id] = sample
        self._oldest.put(request_id, (self._num_placed, sample.number))
        group.longest_tokens = max(group.longest_tokens, len(sample.request.tokens))
        if self.uses_context and (group.needs_probe or group.probe == request_id):
            self._make_probe(sample)
        else:
            group.waiting.put(request_id, (sample.number,))
        self._rank(group)

    def _make_probe(self, sample: Sample) -> None:
        sample.group.probe = sample.request_id
        self._probes.put(sample.request_id, (len(sample.request.tokens), sample.number))

    def _rank(self, group: Group) -> None:
        """Its samples or its estimate have changed."""
        if group.waiting:
            self._largest.put(group.key[2], (-group.expected_tokens if self.uses_context else 0.0, group.number))
        else:
            self._largest.discard(group.key[2])

    def discard(self, sample: Sample) -> None:
        """It waits no longer."""
        request_id = sample.request_id
        del self._samples[request_id]
        self._oldest.discard(request_id)
        self._probes.discard(request_id)
        sample.group.waiting.discard(request_id)
        self._rank(sample.group)

    def take(self, sample: Sample) -> None:
        """It gets a chunk."""
        was_overdue = self._overdue() is sample
        self.discard(sample)
        self._num_placed += 1
        self._num_since_aged = 0 if was_overdue else self._num_since_aged + 1
        if sample.expected is None:
            sample.expected = (sample.group.running_maximum, sample.group.expected_tokens)

    # ---- the order

    def first(self) -> Sample | None:
        if self._num_since_aged >= self.aging_turn - 1 and (overdue := self._overdue()) is not None:
            return overdue
        candidates = self.candidates(1)
        return candidates[0] if candidates else None

    def candidates(self, count: int) -> list[Sample]:
        """Up to `count` in order, aging aside: probes, then one sample of each group."""
        ids = self._probes.top(count)
        for name in self._largest.top(count - len(ids)):
            request_id = self._groups[name].waiting.first()
            ids += [request_id] if request_id is not None else []
        return [self._samples[request_id] for request_id in ids]

    def _overdue(self) -> Sample | None:
        """Who has waited longest, if too long."""
        request_id = self._oldest.first()
        if request_id is None or self._num_placed - self._oldest.key(request_id)[0] < self.patience:
            return None
        return self._samples[request_id]
