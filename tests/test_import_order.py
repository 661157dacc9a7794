"""Imports run one way only, and what must start quickly or run without torch does not import it."""

import subprocess
import sys
from collections import defaultdict

import grimp
import pytest

LEVELS = (
    ("types", "config", "transport", "observe"),
    ("models", "lora"),
    ("state", "kv", "residency", "sharding"),
    ("engine", "drafting", "rollout", "environments", "rewards", "training", "scheduling", "placement"),
    ("tasks", "operations", "cluster"),
    ("server", "client", "cli", "simulation"),
)
"""From the lowest to the highest; a package imports its own level and those before it."""
LEVEL_OF = {package: level for level, packages in enumerate(LEVELS) for package in packages}
TORCH_FREE = (
    "types", "config", "transport", "observe", "state", "drafting", "environments", "rewards", "scheduling", "placement",
    "simulation", "cli.main",
)  # fmt: skip


@pytest.fixture(scope="module")
def edges() -> dict[tuple[str, str], list[str]]:
    """(importing package, imported package) -> the imports; imports for type checkers alone do not count."""
    graph = grimp.build_graph("plait", exclude_type_checking_imports=True, cache_dir=None)
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for importer in sorted(graph.modules):
        for imported in graph.find_modules_directly_imported_by(importer):
            pair = (package_of(importer), package_of(imported))
            if pair[0] != pair[1] and all(pair):
                found[pair].append(f"{importer} imports {imported}")
    return found


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_every_package_has_a_level(edges: dict[tuple[str, str], list[str]]) -> None:
    unknown = {package for pair in edges for package in pair} - LEVEL_OF.keys()
    assert not unknown, f"give {unknown} a level in LEVELS"


def test_lower_levels_never_import_higher_ones(edges: dict[tuple[str, str], list[str]]) -> None:
    wrong = [line for (low, high), lines in edges.items() if LEVEL_OF[low] < LEVEL_OF[high] for line in lines]
    assert not wrong, "\n".join(wrong)


def test_siblings_import_each_other_one_way_only(edges: dict[tuple[str, str], list[str]]) -> None:
    for packages in LEVELS:
        remaining = set(packages)
        while free := {name for name in remaining if not any((name, other) in edges for other in remaining)}:
            remaining -= free
        lines = [line for pair, found in edges.items() if set(pair) <= remaining for line in found]
        assert not remaining, f"{sorted(remaining)} import each other in a circle:\n" + "\n".join(lines)


@pytest.mark.parametrize("package", TORCH_FREE)
def test_imports_no_torch(package: str) -> None:
    code = (
        "import importlib, pkgutil, sys\n"
        f"top = importlib.import_module('plait.{package}')\n"
        "modules = pkgutil.walk_packages(getattr(top, '__path__', []), top.__name__ + '.')\n"
        "for module in modules: importlib.import_module(module.name)\n"
        "assert 'torch' not in sys.modules, 'torch is imported'"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
