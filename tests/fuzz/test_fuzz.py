"""The fuzzer itself, and a few inputs for each parser: `scripts/fuzz` tries many more."""

import json
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from kernel.sysfs import Sysfs
from tests.fuzz import fake_os
from tests.fuzz.campaign import Hang, covered, inputs, judge, run, shortened
from tests.fuzz.mutation import Mutator
from tests.fuzz.parser import Parser
from tests.fuzz.parsers import CORPUS, PARSERS, corpus

FEW = 300


def test_every_parser_has_a_corpus_and_every_corpus_a_parser() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(PARSERS)


@pytest.mark.parametrize("name", PARSERS)
def test_parser_understands_or_refuses_as_it_says(name: str) -> None:
    kept = len(corpus(name))
    result = run(PARSERS[name], inputs(PARSERS[name], 1, 0, kept + FEW))

    assert result.inputs == kept + FEW
    assert [(finding.words, finding.data) for finding in result.findings.values()] == []


@pytest.mark.parametrize("name", ["record", "netlink", "sysfs", "configuration"])
def test_same_seed_gives_the_same_inputs_and_another_one_others(name: str) -> None:
    first, again, other = (list(inputs(PARSERS[name], seed, 3, 50)) for seed in (7, 7, 8))

    assert first == again
    assert first != other


def test_json_stays_json_mostly_and_may_have_a_key_twice() -> None:
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


def chatter(data: bytes) -> None:
    if b"!" in data:
        raise ValueError("x" * 100_000)


@pytest.mark.parametrize(
    ("judge_", "error"), [(crash, "KeyError"), (spin, "Hang"), (grow, "MemoryError"), (chatter, "AssertionError")]
)
def test_what_is_not_documented_is_a_finding(judge_, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.campaign.HANG_SECONDS", 0.05)
    result = run(Parser("planted", judge_, (ValueError,), {}), iter([b"fine", b"wrong!", b"very wrong!", b"fine"]))

    (finding,) = result.findings.values()
    assert finding.where.startswith(error)
    assert (finding.data, result.inputs) == (b"wrong!", 4)


def test_findings_input_is_shortened_to_what_it_needs() -> None:
    parser = Parser("planted", crash, (), {})
    finding = judge(parser, b"a long way to what is wrong! and after it")
    assert finding is not None

    assert shortened(parser, finding).data == b"!"


def test_hang_is_no_error_that_a_parser_could_take_for_its_own() -> None:
    assert not issubclass(Hang, Exception)


def test_branches_that_no_input_reaches_are_told() -> None:
    reached = covered("process", 0, 1)  # the first file of its corpus alone

    assert reached.percent < 100
    assert any(line.startswith("railnet/install/running_plugins.py:") for line in reached.missing)


@pytest.mark.parametrize("name", [path.name for path in sorted((CORPUS / "sysfs").iterdir())])
def test_tree_in_memory_reads_as_one_on_disk(name: str, tmp_path: Path) -> None:
    lines = (CORPUS / "sysfs" / name).read_bytes().replace(b"= EINVAL", b"= 1: DOWN").replace(b"-> gone", b"-> here")
    fake_os.write(lines, tmp_path)

    def told(root: Path) -> object:
        try:
            return Sysfs(root).inventory()
        except (OSError, ValueError) as error:
            return type(error)

    on_disk = told(tmp_path)
    with fake_os.in_place_of_files(lines):
        assert told(Path(fake_os.ROOT)) == on_disk
