"""Warnings and errors, equal ones counted together; and what the log lacks."""

from collections import Counter

import msgspec

from plait.observe.report.history import RunHistory
from plait.observe.snapshot import RunSnapshot
from plait.observe.text import last_line, one_line, printable

MAX_PROBLEMS = 100
MAX_MESSAGE_CHARACTERS = 500
MAX_DETAIL_CHARACTERS = 20_000


class Problem(msgspec.Struct, frozen=True):
    kind: str
    task: str
    message: str
    count: int
    detail: str = ""
    """All of it, where the message is its last line only."""


def find_problems(history: RunHistory, run: RunSnapshot) -> list[Problem]:
    """Failed tasks first, then errors of environments and rewards, then warnings; the most frequent first in each."""
    failed = [
        Problem("failed", task.task, _short(task.cause), 1, _detail(task.cause)) for task in run.tasks if task.state == "failed"
    ]
    errors = Counter(
        (f"{error.stage} error", name, _short(error.error)) for name, task in history.tasks.items() for error in task.errors
    )
    warnings = [Problem("warning", note.task, _short(note.message), note.count) for note in run.notes if note.level == "warning"]
    counted = [Problem(*key, count) for key, count in errors.most_common()]
    return [*_gaps(history), *failed, *counted, *sorted(warnings, key=lambda problem: -problem.count)][:MAX_PROBLEMS]


def _gaps(history: RunHistory) -> list[Problem]:
    """The page shows what there is; what it cannot know is said."""
    if history.start is None:
        missing = "the log has no start of the run, so its model, its time and the workers' idle times are not known"
        return [Problem("incomplete", "", missing, 1)] if history.tasks or history.workers else []
    message = "no start of the run in the log names this task, so its planned steps are not known"
    return [Problem("incomplete", name, message, 1) for name in history.tasks if name not in history.announced]


def _short(message: str) -> str:
    return one_line(last_line(message), MAX_MESSAGE_CHARACTERS)


def _detail(message: str) -> str:
    return printable(message[-MAX_DETAIL_CHARACTERS:]) if "\n" in message.strip() else ""
