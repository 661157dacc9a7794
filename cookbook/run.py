"""`python -m cookbook.run`: start one `plait serve` on a tiny model and run recipes of tinker-cookbook against it."""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cookbook.recipe import Recipe
from cookbook.recipes import RECIPES
from cookbook.runner import RecipeResult, run_recipe
from cookbook.served import Server, end_on_sigterm, serving
from cookbook.workspace import Workspace
from plait.cli.output import print_error
from plait.types.errors import ConfigError, PlaitError


def main(arguments: Sequence[str] | None = None) -> int:
    """0: all recipes did what is expected of them; 1: one did not; 2: it could not be tried."""
    options = _parse(arguments)
    end_on_sigterm()
    try:
        recipes = choose(options.only, options.quick)
        with _folder(options.keep) as folder:
            results = run_all(recipes, folder, Console(highlight=False))
    except PlaitError as error:
        print_error(error)
        return 2
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n", encoding="utf-8")
    return 0 if all(result.passed for result in results) else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m cookbook.run", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", default=[], help="these recipes: " + ", ".join(r.name for r in RECIPES)
    )
    parser.add_argument("--quick", action="store_true", help="a few recipes that take a minute together")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there as well")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="work there and leave it, instead of a temporary folder")
    return parser.parse_args(arguments)


def choose(names: Sequence[str], is_quick: bool) -> list[Recipe]:
    """The recipes that are wanted, and before each the one that it starts from. Raises ConfigError on an unknown name."""
    by_name = {recipe.name: recipe for recipe in RECIPES}
    if unknown := [name for name in names if name not in by_name]:
        raise ConfigError(f"there is no recipe {unknown[0]!r}.", f"Recipes: {', '.join(by_name)}.")
    wanted = {recipe.name for recipe in RECIPES if (recipe.name in names if names else recipe.is_quick or not is_quick)}
    wanted |= {start for name in wanted if (start := by_name[name].starts_from)}
    return [recipe for recipe in RECIPES if recipe.name in wanted]


def run_all(recipes: Sequence[Recipe], folder: Path, console: Console) -> list[RecipeResult]:
    workspace = Workspace(folder)
    console.print(f"Working in {folder}; a log of each recipe lies there.")
    with serving(workspace.model, folder / "server") as server:
        results = [run_one(recipe, workspace, server, console) for recipe in recipes]
    console.print(table(results))
    for result in results:
        for problem in result.problems:
            console.print(f"[bold red]{result.name}[/]: ", end="")
            console.print(problem, markup=False)
    return results


def run_one(recipe: Recipe, workspace: Workspace, server: Server, console: Console) -> RecipeResult:
    with console.status(recipe.name) as status:
        result = run_recipe(recipe, workspace, server, lambda n: status.update(f"{recipe.name}: step {n} of {recipe.num_steps}"))
    verdict = "[green]done[/]" if result.passed else "[bold red]failed[/]"
    console.print(f"{recipe.name}: {verdict}, {result.num_steps} steps in {result.seconds:.1f} s")
    return result


def table(results: Sequence[RecipeResult]) -> Table:
    made = Table("Recipe", "Exit code", "Seconds", "Steps", "Last metrics", "Verdict", title="tinker-cookbook against plait serve")
    for result in results:
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in result.metrics.items())
        verdict = "as expected" if result.passed else "not as expected"
        made.add_row(result.name, str(result.exit_code), f"{result.seconds:.1f}", str(result.num_steps), metrics, verdict)
    return made


class _folder:
    """The folder to work in: the one that is named, or one that goes at the end."""

    def __init__(self, kept: Path | None) -> None:
        self._kept = kept
        self._temporary = None if kept else tempfile.TemporaryDirectory(prefix="plait-cookbook-")

    def __enter__(self) -> Path:
        return Path(self._temporary.name) if self._temporary else Path(self._kept or ".").absolute()

    def __exit__(self, *_: object) -> None:
        if self._temporary:
            self._temporary.cleanup()


if __name__ == "__main__":
    sys.exit(main())
