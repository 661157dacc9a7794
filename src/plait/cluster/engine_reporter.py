"""When an engine reports how it stands. Pure: clock passed in."""

REPORT_EVERY_S = 1.0


class EngineReporter:
    """Told of each piece of work, and when the worker is about to wait; says whether a report is due."""

    def __init__(self) -> None:
        self._reported_s = float("-inf")
        self._has_news = False

    def worked(self, now_s: float) -> bool:
        """A clock that was set back reports at once."""
        self._has_news = 0 <= now_s - self._reported_s < REPORT_EVERY_S
        if not self._has_news:
            self._reported_s = now_s
        return not self._has_news

    def goes_idle(self) -> bool:
        """True if it has worked since the last report."""
        has_news, self._has_news = self._has_news, False
        return has_news
