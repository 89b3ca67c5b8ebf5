"""Tests of the fuzzer itself, and a few inputs for each parser. `scripts/fuzz` tries many more."""

import ast
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from railnet.kernel.sysfs.functions import Sysfs
from tests.fuzz import fake_os
from tests.fuzz.campaign import Hang, covered, inputs, judge, run, shortened
from tests.fuzz.mutation import Mutator
from tests.fuzz.parser import Parser
from tests.fuzz.parsers import CORPUS, PARSERS, corpus

FEW = 300


def test_every_parser_has_a_corpus_and_every_corpus_a_parser() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(PARSERS)


@pytest.mark.parametrize("name", PARSERS)
def test_covered_functions_exist(name: str) -> None:
    """A function that does not exist has no branches, so its coverage would count as complete."""
    for module, functions in PARSERS[name].covers.items():
        tree = ast.parse(Path(f"{module.replace('.', '/')}.py").read_text())
        assert set(functions) <= set(defined(tree))


def defined(node: ast.AST, prefix: str = "") -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + child.name
            yield from defined(child, f"{prefix}{child.name}.")


@pytest.mark.slow
@pytest.mark.parametrize("name", PARSERS)
def test_parser_accepts_inputs_or_raises_a_documented_error(name: str) -> None:
    kept = len(corpus(name))
    result = run(PARSERS[name], inputs(PARSERS[name], 1, 0, kept + FEW))

    assert result.inputs == kept + FEW
    assert [(finding.words, finding.data) for finding in result.findings.values()] == []


@pytest.mark.parametrize("name", ["record", "netlink", "sysfs", "configuration"])
def test_inputs_are_equal_for_equal_seeds_only(name: str) -> None:
    first, again, other = (list(inputs(PARSERS[name], seed, 3, 50)) for seed in (7, 7, 8))

    assert first == again
    assert first != other


def test_mutated_json_is_mostly_json_and_may_have_a_key_twice() -> None:
    mutator = Mutator(Random(0), [b'{"a": [1, {"b": "c"}], "d": null}'])  # noqa: S311 - no secrets
    found = list(islice(iter(mutator.next, None), 2000))

    def is_json(data: bytes) -> bool:
        try:
            json.loads(data)
        except (ValueError, RecursionError):
            return False
        return True

    assert sum(map(is_json, found)) > 800
    assert any(is_json(data) and data.count(b'"d":') > 1 for data in found)


def crash(data: bytes) -> None:
    if b"!" in data:
        raise KeyError(data)


def spin(data: bytes) -> None:
    while b"!" in data:
        pass


def grow(data: bytes) -> None:
    if b"!" in data:
        bytes(1 << 40)


def raise_long_message(data: bytes) -> None:
    if b"!" in data:
        raise ValueError("x" * 100_000)


@pytest.mark.parametrize(
    ("judge_", "error"),
    [(crash, "KeyError"), (spin, "Hang"), (grow, "MemoryError"), (raise_long_message, "AssertionError")],
)
def test_undocumented_error_is_a_finding(judge_, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.campaign.HANG_SECONDS", 0.05)
    result = run(Parser("planted", judge_, (ValueError,), {}), iter([b"fine", b"wrong!", b"very wrong!", b"fine"]))

    (finding,) = result.findings.values()
    assert finding.where.startswith(error)
    assert (finding.data, result.inputs) == (b"wrong!", 4)


def test_input_of_a_finding_is_shortened() -> None:
    parser = Parser("planted", crash, (), {})
    finding = judge(parser, b"a long way to what is wrong! and after it")
    assert finding is not None

    assert shortened(parser, finding).data == b"!"


def test_hang_is_not_an_exception_that_a_parser_could_catch() -> None:
    assert not issubclass(Hang, Exception)


def test_unreached_branches_are_reported() -> None:
    reached = covered("process", 0, 1)  # only the first file of its corpus

    assert reached.percent < 100
    assert any(line.startswith("railnet/install/running_plugins.py:") for line in reached.missing)


@pytest.mark.parametrize("name", [path.name for path in sorted((CORPUS / "sysfs").iterdir())])
def test_tree_in_memory_equals_the_tree_on_disk(name: str, tmp_path: Path) -> None:
    lines = (CORPUS / "sysfs" / name).read_bytes().replace(b"= EINVAL", b"= 1: DOWN").replace(b"-> gone", b"-> here")
    fake_os.write(lines, tmp_path)

    def inventory(root: Path) -> object:
        try:
            return repr(Sysfs(root).inventory()).replace(f"{root}/", "/sys/")  # a fault names the file
        except (OSError, ValueError) as error:
            return type(error)

    on_disk = inventory(tmp_path)
    with fake_os.in_place_of_files(lines):
        assert inventory(Path(fake_os.ROOT)) == on_disk
