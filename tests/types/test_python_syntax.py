"""Sources are parsed right while other threads parse."""

import ast
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from plait.types import python_syntax
from plait.types.python_syntax import parse_expression, parse_module


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_threads_that_parse_at_once_all_succeed() -> None:
    module = "\n".join(f"x = [{n} + ({n} * (2 - {n}))]" for n in range(50))
    wrong: list[BaseException] = []

    def work() -> None:
        end = time.monotonic() + 0.5
        while time.monotonic() < end and not wrong:
            try:
                assert len(parse_module(module).body) == 50
                assert ast.unparse(parse_expression("1+(2*3)")) == "1 + 2 * 3"
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_parser_that_fails_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    real, fails = ast.parse, [SystemError("AST constructor recursion depth mismatch")] * 3

    def parse(source: str, mode: str) -> ast.AST:
        if fails:
            raise fails.pop()
        return real(source, mode=mode)

    monkeypatch.setattr(python_syntax.ast, "parse", parse)
    assert ast.unparse(parse_expression("1")) == "1"
    assert not fails


@pytest.mark.parametrize("wrong", ["1 +", "x = 1", "(" * 1000])
def test_wrong_sources_are_refused(wrong: str) -> None:
    with pytest.raises((SyntaxError, MemoryError, RecursionError)):
        parse_expression(wrong)
