"""Where a process can die and it matters: before and after each commit that changed something, and each rename."""

import os
import signal
from collections.abc import Callable
from typing import Any

from sqlalchemy.engine.default import DefaultDialect

from plait.state import durable


class Points:
    """Counts them once installed, and kills the process with SIGKILL at the one that is named (0: none)."""

    def __init__(self, fatal: int = 0) -> None:
        self.fatal, self.passed = fatal, 0

    def install(self) -> None:
        """In this process, for good."""
        os.rename = self._around(os.rename)
        os.replace = self._around(os.replace)
        durable._exchange = self._around(durable._exchange)
        DefaultDialect.do_commit = self._around_commit(DefaultDialect.do_commit)  # type: ignore[method-assign]

    def _pass(self) -> None:
        self.passed += 1
        if self.passed == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    def _around(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def acted(*values: Any, **more: Any) -> Any:
            self._pass()
            result = act(*values, **more)
            self._pass()
            return result

        return acted

    def _around_commit(self, commit: Callable[..., None]) -> Callable[..., None]:
        changes: dict[int, int] = {}

        def committed(dialect: DefaultDialect, connection: Any) -> None:
            total = connection.total_changes
            has_changed, changes[id(connection)] = changes.get(id(connection)) != total, total
            if has_changed:
                self._pass()
            commit(dialect, connection)
            if has_changed:
                self._pass()

        return committed
