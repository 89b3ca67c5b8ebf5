"""What a log shows of text from outside."""

import logging
import subprocess
import sys

from railnet.cli.log_lines import PrintableLines

HOSTILE = "Job\x1b[2J\nERROR forged\u202e\x9b31m"
SHOWN = "Job\\x1b[2J\n    ERROR forged\\u202e\\x9b31m"


def test_no_line_of_a_message_looks_like_another_message_or_reaches_a_terminal() -> None:
    record = logging.LogRecord("railnet", logging.WARNING, "", 0, "%s is dropped", (HOSTILE,), None)

    text = PrintableLines().format(record)

    assert text.endswith(f" WARNING railnet: {SHOWN} is dropped")
    assert text.replace("\n", "").isprintable()


def test_traceback_keeps_its_lines_and_shows_no_escape() -> None:
    try:
        raise ValueError("\x1b[2J")
    except ValueError:
        record = logging.LogRecord("railnet", logging.ERROR, "", 0, "failed", (), sys.exc_info())

    head, first, *others = PrintableLines().format(record).split("\n")
    assert (head[-6:], first) == ("failed", "Traceback (most recent call last):")
    assert others[-1] == "ValueError: \\x1b[2J"


def test_log_of_a_program_is_written_so() -> None:
    program = (
        "import logging; from railnet.cli.process import log_to_stderr; log_to_stderr(); logging.warning('a\\x1b[2Jb')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stderr.endswith(" WARNING root: a\\x1b[2Jb\n")
