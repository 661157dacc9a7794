"""Draws a snapshot of a run as a table. Depends on the snapshot and the size of the terminal alone."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from plait.observe.engine_counters import pulls_text
from plait.observe.group_lines import group_lines
from plait.observe.snapshot import EngineSnapshot, RunSnapshot, TaskSnapshot, WorkerSnapshot
from plait.observe.text import bar, duration, last_line, model_name, one_line, percent, sparkline

PHASE_STYLES = {
    "warm_start": "cyan",
    "rollout": "blue",
    "environment": "yellow",
    "queued": "bright_black",
    "training": "green",
    "evaluation": "magenta",
    "failed": "bold red",
    "cancelled": "red",
    "done": "bold green",
}
NARROW_CHARACTERS = 100
"""Below this width the small curves and token rates are left out."""

MAX_CAUSES = 3

FIXED_LINES = 8
"""Lines of the view besides one per task, worker, engine and worker group."""


def render_run(run: RunSnapshot, width: int, height: int, under_way: str = "") -> RenderableType:
    """The whole view, at most `height` lines where that can be. `under_way` is shown until the run has come up."""
    causes = _causes(run.tasks)
    room = max(1, height - FIXED_LINES - len(run.workers) - len(run.engines) - len(run.groups) - len(causes))
    parts: list[RenderableType] = [_title(run, under_way), _task_table(_most_telling(run.tasks, room), width >= NARROW_CHARACTERS)]
    if len(run.tasks) > room:
        parts.append(Text(f"  and {len(run.tasks) - room} more tasks: plait status {run.run}", style="dim"))
    parts += causes
    if run.workers:
        parts.append(_worker_table(run.workers, width >= NARROW_CHARACTERS))
    if run.engines:
        parts.append(engine_lines(run.engines))
    if run.groups:
        parts.append(group_lines(run.groups))
    parts.append(_footer(run))
    return Group(*parts)


def phase_text(task: TaskSnapshot) -> Text:
    name = (task.phase or "starting") if task.state == "running" else task.state
    return Text(one_line(name.replace("_", " "), 14), style=PHASE_STYLES.get(name, ""))


def _title(run: RunSnapshot, under_way: str) -> Text:
    if not run.run:
        return Text(f"{one_line(under_way, 100) or 'starting'} ...", style="bold")
    title = Text(no_wrap=True, overflow="ellipsis")
    title.append(one_line(run.run, 40) or "run", style="bold")
    title.append(f"  {one_line(model_name(run.model), 60)}, {run.device} {run.dtype}", style="dim")
    return title


def _most_telling(tasks: Sequence[TaskSnapshot], room: int) -> list[TaskSnapshot]:
    """At most `room` tasks in their own order; those that ended well give way first."""
    if len(tasks) <= room:
        return list(tasks)
    room = max(1, room - 1)
    by_interest = sorted(range(len(tasks)), key=lambda index: (tasks[index].state == "done", index))
    return [tasks[index] for index in sorted(by_interest[:room])]


def _task_table(tasks: Sequence[TaskSnapshot], wide: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("task", no_wrap=True, overflow="ellipsis")
    table.add_column("phase", no_wrap=True, min_width=11)
    table.add_column("version", justify="right", no_wrap=True)
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("reward", no_wrap=True, min_width=16 if wide else 6)
    if wide:
        table.add_column("tokens/s", justify="right", no_wrap=True)
    table.add_column("accuracy", no_wrap=True)
    table.add_column("errors", justify="right", no_wrap=True)
    for task in tasks:
        table.add_row(*_task_cells(task, wide))
    return table


def _causes(tasks: Sequence[TaskSnapshot]) -> list[Text]:
    """Why tasks ended early, the first few."""
    failed = [task for task in tasks if task.cause]
    lines = [Text(f"  {task.task}: {one_line(last_line(task.cause), 100)}", style="red") for task in failed[:MAX_CAUSES]]
    return lines + ([Text(f"  and {len(failed) - MAX_CAUSES} more", style="red")] if len(failed) > MAX_CAUSES else [])


def _task_cells(task: TaskSnapshot, wide: bool) -> list[Text]:
    cells = [
        Text(one_line(task.task, 24)).append(f" {one_line(model_name(task.model), 20)}" if task.model else "", style="dim"),
        phase_text(task),
        Text(f"v{task.policy_version}"),
        Text(f"{task.step}/{task.total_steps}" if task.total_steps is not None else str(task.step)),
        _reward(task, wide),
    ]
    if wide:
        cells.append(Text("-" if task.tokens_per_s is None else f"{task.tokens_per_s:,.0f}"))
    cells.append(_accuracy(task))
    cells.append(Text(str(task.num_errors), style="bold red" if task.num_errors else "dim"))
    return cells


def _reward(task: TaskSnapshot, wide: bool) -> Text:
    text = Text("-" if task.reward_last is None else f"{task.reward_last:.2f}")
    if wide and task.rewards:
        text.append(" " + sparkline(task.rewards, 10), style="cyan")
    return text


def _accuracy(task: TaskSnapshot) -> Text:
    before, last = task.accuracy_before, task.accuracy_last
    if before is None and last is None:
        return Text("-")
    text = Text(percent(before))
    if last is not None and task.step > 0:
        style = "" if before is None else "green" if last > before else "red" if last < before else ""
        text.append(" → ").append(percent(last), style=style)
    return text


def _worker_table(workers: Sequence[WorkerSnapshot], wide: bool) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for worker in workers:
        share = worker.utilisation_recent
        table.add_row(
            Text(one_line(worker.worker, 24)),
            Text(bar(share or 0.0, 20 if wide else 10), style="green" if (share or 0) >= 0.5 else "yellow"),
            Text(percent(share)),
            _activity(worker),
        )
    return table


def engine_lines(engines: Sequence[EngineSnapshot]) -> Text:
    """One for each engine; what was not measured is left out."""
    return Text("\n").join(Text(f" {_engine_text(engine)}", style="dim", no_wrap=True, overflow="ellipsis") for engine in engines)


def _engine_text(engine: EngineSnapshot) -> str:
    parts = [
        f"{one_line(engine.engine, 24)}: idle {percent(engine.idle_share_recent)}",
        f"{engine.num_rows} row{'' if engine.num_rows == 1 else 's'}",
        f"reserved {percent(engine.reserved_share)}",
        f"hits {percent(engine.hit_share)}",
        f"{engine.num_moves:,} moves",
    ]
    if pulls := pulls_text(engine.counters):
        parts.append(pulls)
    if engine.acceptance is not None:
        parts.append(f"accepted {percent(engine.acceptance)} of drafts of {engine.draft_length or 0:.1f}")
    return " · ".join(parts)


def _activity(worker: WorkerSnapshot) -> Text:
    if worker.is_lost:
        return Text("lost", style="bold red")
    if worker.utilisation_recent is None:
        return Text("starting", style="dim")
    parts = [f"idle {duration(worker.idle_s)}" if worker.idle_s >= 1.0 else one_line(worker.task, 24) or "all tasks"]
    if worker.tokens_per_s is not None:
        parts.append(f"{worker.tokens_per_s:,.0f} tokens/s")
    parts.append(f"{percent(worker.utilisation)} since start")
    return Text(" · ".join(parts), style="dim")


def _footer(run: RunSnapshot) -> Text:
    parts = [f"{run.status}, {duration(run.active_s)} elapsed" if run.status != "running" else f"elapsed {duration(run.active_s)}"]
    if run.status == "running" and run.remaining_s is not None:
        parts.append(f"about {duration(run.remaining_s)} remaining")
    if run.steps_per_hour is not None:
        parts.append(f"{run.steps_per_hour:,.0f} steps/h")
    text = Text("\n" + " · ".join(parts), style="dim")
    num_warnings = sum(note.count for note in run.notes if note.level == "warning")
    if num_warnings:
        latest = [note.message for note in run.notes if note.level == "warning"][-1]
        text.append(f"\n{num_warnings} warning{'s' if num_warnings > 1 else ''}, such as: {one_line(latest, 90)}", style="yellow")
    return text
