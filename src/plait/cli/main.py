"""Entry point of `plait`: finds the command, runs it, and turns a `PlaitError` into two lines and exit code 2.

A command's module is imported when the command is called, so that `plait --help` stays quick. In `SECTIONS` the name of the
function (or of the `typer.Typer` of a group) follows the module.
"""

import difflib
import errno
import inspect
import sys
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from plait.cli.output import print_error
from plait.cli.version import version
from plait.types.errors import PlaitError
from plait.types.module_loading import end_quickly, load_at_once

EXIT_ERROR = 2
NAME_WIDTH = 11
"""Of the column of commands, the same in all sections."""


class Command(NamedTuple):
    module: str
    attribute: str
    summary: str


SECTIONS = {
    "Train": {
        "run": Command("plait.cli.run", "run", "Train the tasks of a settings file."),
        "resume": Command("plait.cli.run", "resume", "Go on with a run that was interrupted."),
        "status": Command("plait.cli.status", "status", "Show runs and how far they are."),
        "show": Command("plait.cli.show", "show", "Show the samples of a task's step."),
        "chat": Command("plait.cli.chat", "chat", "Talk to a trained policy."),
        "report": Command("plait.cli.report", "report", "Write a run's report as one HTML file."),
        "export": Command("plait.cli.export", "export", "Write a trained adapter, or the merged model."),
    },
    "Serve": {
        "serve": Command("plait.cli.serve", "serve", "Serve the Tinker API to many clients."),
        "tasks": Command("plait.cli.tasks", "app", "Submit tasks to a server, watch and steer them."),
        "checkpoints": Command("plait.cli.checkpoints", "app", "List, show, delete and export what a server has stored."),
        "usage": Command("plait.cli.usage", "usage", "Show what was used of a server."),
        "keys": Command("plait.cli.keys", "app", "Make, list and revoke the keys of a server."),
        "tenants": Command("plait.cli.tenants", "app", "Show a server's tenants; set shares and quotas."),
    },
    "Simulate": {
        "simulate": Command("plait.cli.simulate", "simulate", "Simulate a cluster, and compare systems on it."),
        "plan": Command("plait.cli.plan", "plan", "Find the smallest cluster on which jobs keep their bounds."),
        "profile": Command("plait.cli.profile", "profile", "Measure a model on this machine, for simulations of it."),
    },
    "This machine": {
        "models": Command("plait.cli.models", "app", "List and fetch base models."),
        "doctor": Command("plait.cli.doctor", "doctor", "Say what this machine lacks, and the remedy."),
        "version": Command("plait.cli.version", "version", "Print the version."),
    },
}
"""As `plait --help` lists them."""
COMMANDS = {name: command for section in SECTIONS.values() for name, command in section.items()}


class LazyGroup(TyperGroup):
    """Lists all commands, and imports only the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str, Any, list[str]]:
        name = args[0]
        if name not in COMMANDS:
            raise PlaitError(f"there is no command {name!r}.", _nearest(name))
        return name, load_command(name), args[1:]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """By what they are for."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(NAME_WIDTH), command.summary) for name, command in commands.items()])


def load_command(name: str) -> Any:
    """Import a command and make it callable by the command line."""
    command = COMMANDS[name]
    target = getattr(load_at_once(command.module), command.attribute)
    if isinstance(target, typer.Typer):
        return typer.main.get_command(target)
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, help=_help(command, target))(target)
    return typer.main.get_command(single)


def build_group() -> Any:
    """The `plait` command with a stub for each of its commands."""
    app = typer.Typer(cls=LazyGroup, name="plait", no_args_is_help=True, rich_markup_mode=None)
    app.callback(help="Train many reinforcement-learning tasks with verifiable rewards at once on shared base models.")(_root)
    group: Any = typer.main.get_group(app)
    for name, command in COMMANDS.items():
        group.add_command(TyperCommand(name, help=command.summary), name)
    return group


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit. 0: done; 1: done, and the answer is no; 2: an error that was explained."""
    end_quickly()
    try:
        build_group().main(args=arguments, prog_name="plait")
    except PlaitError as error:
        print_error(error)
        sys.exit(EXIT_ERROR)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print_error(PlaitError(f"cannot write: {error.strerror}.", "Make room, or write elsewhere."))
        sys.exit(EXIT_ERROR)
    except ModuleNotFoundError as error:
        from plait.cli.extras import extra_of

        extra = extra_of(error.name or "")
        if extra is None:
            raise
        print_error(PlaitError(f"{error.name} is not installed.", f"Install it: pip install 'plait[{extra}]'"))
        sys.exit(EXIT_ERROR)


def _help(command: Command, target: Any) -> str:
    """The summary, then what the function's own words add to it."""
    more = (inspect.getdoc(target) or "").removeprefix(command.summary).strip()
    return f"{command.summary}\n\n{more}".strip()


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        version()
        raise typer.Exit()


def _root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True, callback=_print_version),
) -> None:
    """Options of `plait` itself."""


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    return f"Did you mean `plait {near[0]}`?" if near else f"Commands: {', '.join(COMMANDS)}."


if __name__ == "__main__":
    main()
