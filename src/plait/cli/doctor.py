"""`plait doctor`: what this machine has, what is missing, and how to mend it."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.output import coloured, print_json

if TYPE_CHECKING:
    from plait.cli.machine import Finding


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False) -> None:
    """Say what this machine has, what is missing, and how to mend it. Exits with 1 when something needed is missing."""
    import msgspec

    from plait.cli.machine import examine_machine

    findings: list[Finding] = []
    for finding in examine_machine():
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
    print(f"{coloured(f'{finding.status:<8}', finding.status, sys.stdout)} {finding.name:<18} {finding.detail}", flush=True)
    if finding.remedy:
        print(f"{'':<28}{finding.remedy}")
