"""`plait show`: what a policy said in one step, question by question."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plait.cli.output import print_json

if TYPE_CHECKING:
    from rich.text import Text

    from plait.state.rundir import RunDirectory
    from plait.state.samples import SampleRecord

EVALUATION_PREFIX = "evaluation-"


def show(
    run: Annotated[str, typer.Argument(help="Name or folder of the run.")],
    task: Annotated[str, typer.Argument(help="Name of the task.")],
    step: Annotated[int | None, typer.Option(help="Which step, or version with --evaluation; without it, the last.", min=0)] = None,
    evaluation: Annotated[bool, typer.Option("--evaluation", help="The held-out questions instead of the rollouts.")] = False,
    runs: Annotated[Path, typer.Option("--runs", help="Folder that holds the runs.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the samples as JSON.")] = False,
) -> None:
    """Show the samples of a task's step.

    Prompt, answer, reward and stop reason of each.
    """
    from plait.state.rundir import find_run
    from plait.state.samples import read_samples

    path = find_samples(find_run(run, runs), task, step, evaluation)
    samples = read_samples(path)
    if as_json:
        print_json({"run": run, "task": task, "step": _number(path), "samples": [_as_dict(sample) for sample in samples]})
    else:
        _print_samples(task, path, samples)


def find_samples(directory: "RunDirectory", task: str, step: int | None, evaluation: bool) -> Path:
    """The file of that step, or of the last one. Raises StateError naming what there is instead."""
    from plait.types.errors import StateError

    tasks = directory.list_tasks()
    if task not in tasks:
        raise StateError(
            f"run {directory.name} has no samples of a task {task!r}.", f"Its tasks: {', '.join(tasks) or 'none yet'}."
        )
    files = {_number(path): path for path in directory.samples_folder(task).glob("*.jsonl") if _is_wanted(path, evaluation)}
    kind = "evaluation" if evaluation else "step"
    if not files:
        raise StateError(f"task {task!r} has no {kind} with samples yet.", f"`plait status {directory.name}` shows how far it is.")
    if step is not None and step not in files:
        raise StateError(f"task {task!r} has no samples of {kind} {step}.", f"There are: {_ranges(sorted(files))}.")
    return files[max(files) if step is None else step]


def _is_wanted(path: Path, evaluation: bool) -> bool:
    is_evaluation = path.stem.startswith(EVALUATION_PREFIX)
    return is_evaluation == evaluation and path.stem.removeprefix(EVALUATION_PREFIX).isdecimal()


def _number(path: Path) -> int:
    digits = path.stem.removeprefix(EVALUATION_PREFIX)
    return int(digits) if digits.isdecimal() else -1


def _ranges(numbers: list[int]) -> str:
    """`1-4, 7`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _as_dict(sample: "SampleRecord") -> dict[str, Any]:
    trajectory = sample.trajectory
    policies = [segment.policy for segment in trajectory.segments if segment.policy is not None]
    return {
        "example_id": trajectory.example_id,
        "group": trajectory.group_index,
        "sample": trajectory.sample_index,
        "policy_version": policies[-1].version if policies else None,
        "prompt": sample.prompt_text,
        "answers": list(sample.answer_texts),
        "feedback": list(sample.feedback_texts),
        "reward": trajectory.reward,
        "stop": trajectory.stop,
        "sampled_tokens": trajectory.num_sampled_tokens,
        "metrics": trajectory.metrics,
    }


def _print_samples(task: str, path: Path, samples: "list[SampleRecord]") -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, soft_wrap=True, highlight=False)
    rewards = [sample.trajectory.reward for sample in samples]
    noun = "version" if path.stem.startswith(EVALUATION_PREFIX) else "step"
    mean = f", mean reward {sum(rewards) / len(rewards):.3f}" if rewards else ""
    console.print(Text(f"{task}, {noun} {_number(path)}: {len(samples)} answers{mean}", style="bold"))
    groups: dict[int, list[SampleRecord]] = {}
    for sample in samples:
        groups.setdefault(sample.trajectory.group_index, []).append(sample)
    for members in groups.values():
        console.print(_question(members[0], len(groups)))
        for sample in members:
            console.print(_answer(sample))


def _question(sample: "SampleRecord", num_groups: int) -> "Text":
    from rich.text import Text

    from plait.observe.text import printable

    text = Text(f"\nquestion {sample.trajectory.group_index + 1} of {num_groups}", style="bold cyan")
    text.append(f"  {printable(sample.trajectory.example_id)}\n", style="not bold dim")
    return text.append(_indented(sample.prompt_text, "  "), style="not bold default")


def _answer(sample: "SampleRecord") -> "Text":
    from rich.text import Text

    trajectory = sample.trajectory
    text = Text(f"  reward {trajectory.reward:.3g}", style="bold green" if trajectory.reward > 0 else "bold red")
    text.append(f"  {trajectory.stop.replace('_', ' ')}, {trajectory.num_sampled_tokens} tokens\n", style="not bold dim default")
    for turn, answer in enumerate(sample.answer_texts):
        text.append(_indented(answer, "    > "), style="not bold default")
        if turn < len(sample.feedback_texts):
            text.append("\n" + _indented(sample.feedback_texts[turn], "    < ") + "\n", style="not bold yellow")
    return text


def _indented(text: str, prefix: str) -> str:
    from plait.observe.text import printable

    return "\n".join(prefix + line for line in printable(text.strip("\n")).split("\n"))
