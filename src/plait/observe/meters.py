"""Measures over time, fed with spans and counts in the order they end. No clock inside; bounded memory."""

from collections import deque

from plait.observe.snapshot import IdleSpan

UTILISATION_WINDOW_S = 60.0
"""What "recent" means for workers."""

MERGE_GAP_S = 0.05
"""Busy spans closer than this are one; a shorter pause is not an idle span."""

MAX_IDLE_SPANS = 32
"""How many of the latest idle spans are kept."""

MIN_RATE_WINDOW_S = 60.0
"""A task's token rate is over its latest steps, at least so much time."""

MAX_RATE_STEPS = 256


class BusyMeter:
    """How busy one worker was. Spans of one worker come in order and do not overlap; where they do, time counts once."""

    def __init__(self) -> None:
        self.busy_s = 0.0
        self.num_idle_spans = 0
        self.longest_idle_s = 0.0
        self.idle_spans: deque[IdleSpan] = deque(maxlen=MAX_IDLE_SPANS)
        self.free_since_s: float | None = None
        self._recent: deque[tuple[float, float, float, int]] = deque()

    def start(self, now_s: float) -> None:
        """The run comes up: time before `now_s` is neither busy nor idle."""
        self.free_since_s = now_s
        self._recent.clear()

    def add(self, start_s: float, end_s: float, num_tokens: int = 0) -> None:
        free_since_s = start_s if self.free_since_s is None else self.free_since_s
        begin_s = max(start_s, free_since_s)
        if begin_s - free_since_s >= MERGE_GAP_S:
            self._add_idle(IdleSpan(free_since_s, begin_s))
        busy_s = max(0.0, end_s - begin_s)
        self.busy_s += busy_s
        self.free_since_s = max(end_s, free_since_s)
        self._remember(begin_s, max(end_s, begin_s), busy_s, num_tokens)

    def _add_idle(self, span: IdleSpan) -> None:
        self.num_idle_spans += 1
        self.longest_idle_s = max(self.longest_idle_s, span.end_s - span.start_s)
        self.idle_spans.append(span)

    def _remember(self, start_s: float, end_s: float, busy_s: float, num_tokens: int) -> None:
        if self._recent and start_s - self._recent[-1][1] < MERGE_GAP_S and end_s - self._recent[-1][0] < 1.0:
            first_s, _, earlier_busy_s, earlier_tokens = self._recent.pop()
            start_s, busy_s, num_tokens = first_s, busy_s + earlier_busy_s, num_tokens + earlier_tokens
        self._recent.append((start_s, end_s, busy_s, num_tokens))
        while self._recent and self._recent[0][1] <= end_s - UTILISATION_WINDOW_S:
            self._recent.popleft()

    def recent(self, now_s: float, window_s: float) -> tuple[float, float]:
        """(busy seconds, tokens) in the `window_s` before `now_s`; a span that reaches in counts in proportion."""
        begin_s, busy_s, tokens = now_s - window_s, 0.0, 0.0
        for start_s, end_s, span_busy_s, span_tokens in self._recent:
            inside_s = min(end_s, now_s) - max(start_s, begin_s)
            if inside_s > 0:
                share = inside_s / (end_s - start_s)
                busy_s += share * span_busy_s
                tokens += share * span_tokens
        return busy_s, tokens


class TokenRate:
    """Tokens per second over the latest counts that together span `MIN_RATE_WINDOW_S`."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()
        self._since_s: float | None = None

    def start(self, now_s: float) -> None:
        self._counts.clear()
        self._since_s = now_s

    def add(self, time_s: float, num_tokens: int) -> None:
        self._counts.append((time_s, num_tokens))
        while len(self._counts) > 1 and (time_s - self._counts[0][0] >= MIN_RATE_WINDOW_S or len(self._counts) > MAX_RATE_STEPS):
            self._since_s = self._counts.popleft()[0]

    @property
    def tokens_per_s(self) -> float | None:
        if not self._counts or self._since_s is None or self._counts[-1][0] <= self._since_s:
            return None
        return sum(tokens for _, tokens in self._counts) / (self._counts[-1][0] - self._since_s)
