"""What a command prints for a person, and what for a program."""

import io
import json
from enum import StrEnum

import pytest
import yaml

from railnet.cli.colour import Colour, Words
from railnet.cli.output import Form, Output, has_colours


class Stage(StrEnum):
    RUNNING = "running"


TOLD = {"name": "ü", "tasks": ({"stage": Stage.RUNNING, "why": None},), "nodes": 2}
WORDS = Words({"error": Colour.RED, "not ready": Colour.RED, "ready": Colour.GREEN})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(capsys: pytest.CaptureFixture[str], output: Output, *lines: str) -> str:
    output.show(TOLD, lines, WORDS)
    return capsys.readouterr().out


def test_json_and_yaml_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    as_json = json.loads(printed(capsys, Output(Form.JSON)))

    assert as_json == {"name": "ü", "tasks": [{"stage": "running", "why": None}], "nodes": 2}
    assert yaml.safe_load(printed(capsys, Output(Form.YAML))) == as_json


def test_each_report_of_a_series_is_a_line_of_json_or_a_document_of_yaml() -> None:
    lines = Output(Form.JSON).text_of_series(TOLD) * 2
    documents = Output(Form.YAML).text_of_series(TOLD) * 2

    assert [json.loads(line) for line in lines.splitlines()] == list(yaml.safe_load_all(documents))


@pytest.mark.parametrize("form", [Form.JSON, Form.YAML])
def test_lines_are_not_made_where_a_program_reads(form: Form, capsys: pytest.CaptureFixture[str]) -> None:
    Output(form).show(TOLD, (pytest.fail("it was made") for _ in "x"))

    assert capsys.readouterr().out


def test_line_has_no_character_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, Output(), "a\x1b[2Jb") == "a\\x1b[2Jb\n"
    assert printed(capsys, Output(coloured=True), "a\x1b[2Jb") == "a\\x1b[2Jb\n"


@pytest.mark.parametrize(
    ("line", "painted"),
    [
        ("error    x", "\x1b[31merror\x1b[0m    x"),
        ("x  error", "x  \x1b[31merror\x1b[0m"),
        ("railnet 1.2.3: not ready", "railnet 1.2.3: \x1b[31mnot ready\x1b[0m"),
        ("no error here", "no error here"),
        ("errors  x", "errors  x"),
    ],
)
def test_word_has_its_colour_where_it_is_a_whole_cell(
    line: str, painted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, Output(coloured=True), line) == f"{painted}\n"
    assert printed(capsys, Output(), line) == f"{line}\n"


def test_colours_are_written_to_a_terminal_alone_and_to_none_that_refuses_them() -> None:
    assert has_colours(Terminal(), {"TERM": "xterm"})
    assert not has_colours(io.StringIO(), {})
    assert not has_colours(Terminal(), {}, refused=True)
    assert not has_colours(Terminal(), {"NO_COLOR": "1"})
    assert not has_colours(Terminal(), {"TERM": "dumb"})
