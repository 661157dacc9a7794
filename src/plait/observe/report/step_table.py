"""The steps of a task as rows of text. Columns in which no step has a value are left out."""

import msgspec

from plait.observe.events import StepCommitted
from plait.observe.report.curves import thin_steps

MAX_ROWS = 400
"""Most rows per task; of more steps every nth is shown, and the last."""

COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("reward_mean", "reward", ".3f"),
    ("reward_std", "± std", ".3f"),
    ("loss", "loss", ".4g"),
    ("grad_norm", "grad norm", ".3g"),
    ("learning_rate", "learning rate", ".2g"),
    ("num_sequences", "sequences", ",d"),
    ("num_sampled_tokens", "sampled tokens", ",d"),
    ("num_trained_tokens", "trained tokens", ",d"),
    ("num_groups_without_gradient", "groups without gradient", "d"),
    ("num_dropped_groups", "dropped groups", "d"),
    ("kl_to_base", "KL to base", ".3g"),
    ("ratio_mean", "ratio", ".6g"),
    ("logprob_gap_max", "log-prob gap", ".2g"),
    ("staleness_mean", "staleness", ".2f"),
    ("rollout_s", "rollout s", ".1f"),
    ("tail_s", "tail s", ".2f"),
    ("environment_s", "environment s", ".1f"),
    ("queued_s", "queued s", ".1f"),
    ("training_s", "training s", ".1f"),
)
OFTEN_ZERO = frozenset({"num_groups_without_gradient", "num_dropped_groups", "staleness_mean"})
"""Left out also when all are zero."""


class StepTable(msgspec.Struct, frozen=True):
    task: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    num_steps: int


def step_table(task: str, steps: list[StepCommitted]) -> StepTable:
    shown = thin_steps(steps, MAX_ROWS)
    columns = [column for column in COLUMNS if _has_values(column[0], steps)]
    has_stops = any(step.stop_counts for step in steps)
    header = ("step", "phase", *(label for _, label, _ in columns), *(("stops",) if has_stops else ()))
    rows = tuple(_row(step, columns, has_stops) for step in shown)
    return StepTable(task, header, rows, len(steps))


def _has_values(name: str, steps: list[StepCommitted]) -> bool:
    values = [getattr(step, name) for step in steps]
    return any(value is not None and (value or name not in OFTEN_ZERO) for value in values)


def _row(step: StepCommitted, columns: list[tuple[str, str, str]], has_stops: bool) -> tuple[str, ...]:
    cells = [str(step.step), step.phase.replace("_", " ")]
    for name, _, form in columns:
        value = getattr(step, name)
        cells.append("-" if value is None else format(value, form))
    if has_stops:
        cells.append(", ".join(f"{name.replace('_', ' ')} {count}" for name, count in sorted(step.stop_counts.items())) or "-")
    return tuple(cells)
