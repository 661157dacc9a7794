"""Which step records stay: the last `KEPT_LAST`, every `keep_every_steps`-th, and those that somebody needs.

Records of whole models are large: of them no `keep_every_steps`-th is kept (None).
"""

from collections.abc import Collection, Iterable
from pathlib import Path

from plait.state.durable import remove_folder
from plait.state.records import list_steps, step_folder

KEPT_LAST = 2
"""The newest record, and the one to fall back to should it turn out damaged."""


def steps_to_remove(steps: Iterable[int], keep_every_steps: int | None, protected: Collection[int] = ()) -> list[int]:
    """Of ascending or unsorted `steps`, those that may go. `protected`: best evaluation, versions in use."""
    ordered = sorted(set(steps))
    old = ordered[:-KEPT_LAST]
    return [step for step in old if (keep_every_steps is None or step % keep_every_steps) and step not in protected]


def thin_records(directory: Path, keep_every_steps: int | None, protected: Collection[int] = ()) -> list[int]:
    """Remove what retention lets go, weights with their records, and return the removed steps."""
    removed = steps_to_remove(list_steps(directory), keep_every_steps, protected)
    for step in removed:
        remove_folder(step_folder(directory, step))
    return removed
