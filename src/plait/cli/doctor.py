"""`plait doctor`: what this machine has, what is missing, and how to mend it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.output import coloured, print_json

if TYPE_CHECKING:
    from plait.cli.finding import Finding


def doctor(
    file: Annotated[Path | None, typer.Argument(help="Settings file: what it needs counts as needed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Say what this machine lacks, and the remedy.

    What it has, too. Exit code 1: something that is needed is missing.
    """
    import msgspec

    from plait.cli.machine import examine_machine
    from plait.cli.settings_needs import Needs, read_needs

    findings: list[Finding] = []
    for finding in examine_machine(Needs() if file is None else read_needs(file)):
        findings.append(finding)
        if not as_json:
            _print_finding(finding)
    is_ok = all(finding.status != "missing" for finding in findings)
    if as_json:
        print_json({"ok": is_ok, "findings": msgspec.to_builtins(findings)})
    elif is_ok:
        print("Nothing that is needed is missing.")
    if not is_ok:
        raise typer.Exit(1)


def _print_finding(finding: "Finding") -> None:
    told = f" ({finding.purpose})" if finding.purpose else ""
    print(f"{coloured(f'{finding.status:<8}', finding.status, sys.stdout)} {finding.name:<18} {finding.detail}{told}", flush=True)
    if finding.remedy:
        print(f"{'':<28}{finding.remedy}")
