"""Python's parser, safe where several threads use it."""

import ast
from typing import Any

MAX_TRIES = 100


def parse_module(source: str) -> ast.Module:
    """What `ast.parse` gives for a module, in any thread."""
    return _parse(source, "exec")


def parse_expression(source: str) -> ast.Expression:
    """What `ast.parse` gives for an expression, in any thread. Raise SyntaxError, MemoryError or RecursionError as it does."""
    return _parse(source, "eval")


def _parse(source: str, mode: str) -> Any:
    """Until Python 3.11.8 the parser keeps its depth in one place for all threads (CPython gh-106905), and printing a
    traceback parses too: a sound source can fail with SystemError. The next try has it right."""
    for _ in range(MAX_TRIES - 1):
        try:
            return ast.parse(source, mode=mode)
        except SystemError:
            continue
    return ast.parse(source, mode=mode)
