"""The pauses between tries: they double, they end at the longest, and no two programs need have the same."""

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.backoff import Backoff

LEAST, MOST = 0.0, 1.0 - 2.0**-53  # the bounds of random.random()
SECONDS = st.floats(0.001, 1e6)
JITTER = st.floats(0.0, 1.0, exclude_max=True)
FAILURES = st.integers(1, 10**9)

ROOT = Path(__file__).resolve().parents[2]
# What may double without `Backoff`, and why.
DOUBLES = {
    "railnet/backoff.py": "it is the rule",
    "railnet/apiserver/object_watch.py": "the size of a page, no time",
    "railnet/daemon/process/supervisor.py": "a look counts as two ticks at most; the program imports nothing of Railnet",
}


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _multiplied(node: ast.AST) -> Iterator[str]:
    """Yield what is multiplied by a number, anywhere in an expression."""
    for one in ast.walk(node):
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mult):
            for factor, other in ((one.left, one.right), (one.right, one.left)):
                if _is_number(factor) and not _is_number(other):
                    yield ast.unparse(other)


def _is_growth(node: ast.AST) -> bool:
    """Return whether an expression or a statement makes something grow by a factor, step by step."""
    match node:
        case ast.BinOp(left=base, op=ast.Pow(), right=exponent):
            return ast.unparse(base) in ("2", "2.0") and any(
                isinstance(one, ast.Name | ast.Attribute) for one in ast.walk(exponent)
            )
        case ast.AugAssign(op=ast.Mult(), value=factor):
            return _is_number(factor)
        case ast.Assign(targets=[target], value=value):
            return ast.unparse(target) in _multiplied(value)
        case ast.Call(func=ast.Name(id="min"), args=args):
            return any(True for one in args for _ in _multiplied(one))
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return len(elements) > 2 and all(map(_is_number, elements)) and _doubles(elements)
        case _:
            return False


def _doubles(numbers: list[ast.expr]) -> bool:
    values = [ast.literal_eval(number) for number in numbers]
    return (
        values[0] > 0
        and isinstance(values[0], float)
        and all(later == 2 * earlier for earlier, later in pairwise(values))
    )


def growths(source: str) -> list[str]:
    return [ast.unparse(node) for node in ast.walk(ast.parse(source)) if _is_growth(node)]


def test_pause_doubles_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 30.0)

    assert [backoff.pause(failures, MOST) for failures in range(1, 10)] == pytest.approx(
        [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    )


def test_least_pause_is_half_of_the_largest() -> None:
    backoff = Backoff(0.5, 30.0)

    assert [backoff.pause(failures, LEAST) for failures in (1, 2, 7, 8)] == [0.25, 0.5, 15, 15]


def test_pauses_are_spread_evenly_between_the_bounds() -> None:
    assert [Backoff(2.0, 30.0).pause(1, jitter) for jitter in (0.0, 0.25, 0.5, 0.75)] == [1.0, 1.25, 1.5, 1.75]


@given(first=SECONDS, longest=SECONDS, failures=FAILURES, jitter=JITTER)
def test_pause_is_never_beyond_its_bounds(first: float, longest: float, failures: int, jitter: float) -> None:
    least = min(first, longest) / 2

    assert least <= Backoff(first, longest).pause(failures, jitter) <= longest


@given(first=SECONDS, longest=SECONDS, failures=FAILURES, jitter=JITTER)
def test_later_pause_is_never_shorter_with_the_same_jitter(
    first: float, longest: float, failures: int, jitter: float
) -> None:
    backoff = Backoff(first, longest)

    assert backoff.pause(failures, jitter) <= backoff.pause(failures + 1, jitter)


@pytest.mark.parametrize("failures", [1023, 1024, 1025, 10**9, 10**400])
@pytest.mark.parametrize("first", [1e-300, 0.5, 1e300])
def test_years_of_failures_do_not_overflow(first: float, failures: int) -> None:
    assert Backoff(first, 60.0).pause(failures, LEAST) == 30.0


def test_backoff_without_a_pause_waits_for_nothing() -> None:
    assert Backoff(0.0, 30.0).pause(2000, MOST) == 0.0


@pytest.mark.parametrize(
    "source",
    [
        "pause = min(2 * pause, LONGEST)",
        "waiting.pause = min(waiting.pause * 2, patience.longest)",
        "self._pauses[what] = min(2 * pause, LONGEST)",
        "pause = pauses.again if well else min(2 * pause, pauses.resync)",
        "return max(asked, min(FIRST * 2.0 ** min(failures - 1, 16), LONGEST))",
        "pause *= 1.5",
        "pause = pause * 2",
        "PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)",
    ],
)
def test_pause_that_grows_by_itself_is_found(source: str) -> None:
    body = source if not source.startswith("return") else f"def pause(failures, asked):\n    {source}"

    assert growths(body)


@pytest.mark.parametrize(
    "source",
    ["most = 2**31 - 1", "wide = 2 * PATIENCE_SECONDS", "FLAGS = (1, 2, 4)", "PAUSES = (0.0, 1.0, 2.0)", "x = 1 << 20"],
)
def test_number_that_does_not_grow_is_not_found(source: str) -> None:
    assert growths(source) == []


@pytest.mark.slow
def test_no_other_module_has_pauses_that_grow() -> None:
    """A back-off of its own has no jitter, or another one."""
    paths = [path for package in ("railnet", "cni", "deviceplugin") for path in (ROOT / package).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): grown for path in paths if (grown := growths(path.read_text()))}

    assert found.keys() == DOUBLES.keys(), found
