"""Text from outside changes nothing of a terminal."""

import ast
from pathlib import Path

import pytest

import railnet
from railnet.cli.escapes import printable, printable_lines


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("", ""),
        ("rail 0: ✓ ä", "rail 0: ✓ ä"),
        ("a\x1b[1mb", "a\\x1b[1mb"),
        ("a\tb\r\n", "a\\tb\\r\\n"),
        ("\u202eabc", "\\u202eabc"),
        ("\udc80", "\\udc80"),
    ],
)
def test_what_cannot_be_printed_is_shown_as_its_number(line: str, shown: str) -> None:
    assert printable(line) == shown


def test_line_that_is_longer_than_a_page_is_cut() -> None:
    shown = printable("\x1b" + "x" * 70_000)

    assert shown.startswith("\\x1bxx")
    assert shown.endswith("x… (65905 characters more)")
    assert len(shown) < 4200


def test_no_command_prints_past_the_one_way_out() -> None:
    root = Path(railnet.__file__).parent
    printing = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"
    }

    assert printing == {
        "__main__.py",  # its own version, its own completion, paths that the installer wrote
        "cli/messages.py",
        "kernel/processes/host_entry.py",  # between fork and exec, where nothing may be imported
        "train/top.py",  # JSON and YAML, by `railnet.cli.output`
        "train/up.py",  # an empty line after ^C
        "webhook/explain_command.py",  # each line is `printable`
    }


def test_lines_stay_lines() -> None:
    assert list(printable_lines("a\nb\x07\u2028c")) == ["a", "b\\x07\\u2028c"]
