"""Text from outside changes nothing of a terminal."""

import pytest

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


def test_lines_stay_lines() -> None:
    assert list(printable_lines("a\nb\x07\u2028c")) == ["a", "b\\x07\\u2028c"]
