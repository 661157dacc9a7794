"""`plait chat`: a conversation in the terminal with a trained policy, or one answer to what is piped in."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from plait.client.policies import Policy
    from plait.types.messages import Message

QUIT_WORDS = ("/quit", "/exit")
HELP = "Empty line or /quit ends, /new starts over."


def chat(
    run: Annotated[str, typer.Argument(help="Name or folder of the run.")],
    task: Annotated[str, typer.Argument(help="Name of the task.")],
    step: Annotated[int | None, typer.Option(help="Policy version; without it, the best one, else the last.", min=0)] = None,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer.", min=1)] = 256,
    temperature: Annotated[float, typer.Option(help="0 is greedy.", min=0, max=2)] = 0.0,
    runs: Annotated[Path, typer.Option("--runs", help="Folder that holds the runs.")] = Path("runs"),
) -> None:
    """Talk to a trained policy.

    In the terminal, or with one message that is piped in: echo "2 + 2 =" | plait chat RUN TASK
    """
    from plait.client.policies import open_policy
    from plait.state.rundir import find_run
    from plait.types.messages import Message

    opening = [Message("system", system)] if system is not None else []
    with open_policy(find_run(run, runs), task, step=step) as policy:
        if not sys.stdin.isatty():
            _answer(policy, [*opening, Message("user", sys.stdin.read().strip())], max_new_tokens, temperature)
            return
        print(HELP, file=sys.stderr)
        _converse(policy, opening, max_new_tokens, temperature)


def _converse(policy: "Policy", opening: "list[Message]", max_new_tokens: int, temperature: float) -> None:
    from plait.types.messages import Message

    messages = list(opening)
    while (line := _read_line()) and line not in QUIT_WORDS:
        if line == "/new":
            messages = list(opening)
            continue
        messages.append(Message("user", line))
        messages.append(Message("assistant", _answer(policy, messages, max_new_tokens, temperature)))


def _read_line() -> str:
    try:
        return input("> ").strip()
    except EOFError:
        return ""


def _answer(policy: "Policy", messages: "list[Message]", max_new_tokens: int, temperature: float) -> str:
    from plait.observe.text import printable

    text = policy.reply(messages, max_new_tokens=max_new_tokens, temperature=temperature)
    print(printable(text))
    return text
