"""One line per thing worth knowing, without control codes, for logs and pipes."""

from plait.observe import events as e
from plait.observe.summary import RunSummary
from plait.observe.text import duration, last_line, local_time, model_name, one_line, percent

MAX_MESSAGE_CHARACTERS = 300
TOLD_STATES = ("done", "failed", "cancelled", "paused")


def plain_line(event: e.Event, summary: RunSummary) -> str | None:
    """The line for an event that `summary` has taken in already; None if it is not worth one."""
    text = _text(event, summary)
    return None if text is None else stamped(text, event.time_s)


def stamped(text: str, time_s: float) -> str:
    return f"{local_time(time_s, '%H:%M:%S')}  {text}"


def _text(event: e.Event, summary: RunSummary) -> str | None:
    match event:
        case e.RunStarted():
            verb = "resumed" if event.resumed else "started"
            return (
                f"run {event.run} {verb}: {model_name(event.model)}, {event.device} {event.dtype}, tasks {', '.join(event.tasks)}"
            )
        case e.RunEnded():
            return f"run {event.status} after {duration(summary.active_s(event.time_s))}"
        case e.TaskStateChanged() if event.state in TOLD_STATES:
            return f"{event.task}  {event.state}{f': {_short(event.cause)}' if event.cause else ''}"
        case e.StepCommitted():
            return _step_text(event, summary)
        case e.EvaluationDone():
            return f"{event.task}  version {event.version}  accuracy {percent(event.accuracy)} of {event.num_questions} questions"
        case e.RewardError():
            return f"{event.task}  step {event.step}  {event.stage} error: {_short(event.error)}"
        case e.WorkerLost():
            return f"worker {event.worker} lost: {_short(event.cause)}"
        case e.JobMoved():
            return f"base model {event.job} moved from {event.source} to {event.target}"
        case e.Note():
            return f"{event.level}: {event.task + ': ' if event.task else ''}{one_line(event.message, MAX_MESSAGE_CHARACTERS)}"
    return None


def _step_text(event: e.StepCommitted, summary: RunSummary) -> str:
    task = summary.tasks[event.task]
    parts = [event.task, f"step {event.step}{f'/{task.total_steps}' if task.total_steps is not None else ''}"]
    if event.phase == "warm_start":
        parts.append("warm start")
    if event.reward_mean is not None:
        parts.append(f"reward {event.reward_mean:.3f}")
    parts.append(f"loss {event.loss:.4g}")
    if (rate := task.tokens_per_s) is not None:
        parts.append(f"{rate:.0f} tokens/s")
    for name, value in (("rollout", event.rollout_s), ("environment", event.environment_s), ("training", event.training_s)):
        if value is not None:
            parts.append(f"{name} {value:.1f} s")
    return "  ".join(parts)


def _short(message: str) -> str:
    return one_line(last_line(message), MAX_MESSAGE_CHARACTERS)
