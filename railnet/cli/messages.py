"""Prints what a command says to a person: beside its output, on standard error after the program's name; or line by line as its output."""

import sys

from railnet.cli.closed_pipe import STDERR, discard
from railnet.cli.escapes import printable, printable_lines


def tell(line: object) -> None:
    """Print a line of a command's output at once. Text from outside may be in it."""
    print(printable(str(line)), flush=True)


def say(what: object) -> None:
    """Print a message. Text from outside may be in it: only its lines' ends are kept as they are.

    Where nothing reads standard error any more, the command goes on: it may have to take back what it has begun.
    """
    text = "\n".join(printable_lines(str(what)))
    try:
        print(f"railnet: {text}", file=sys.stderr, flush=True)
    except BrokenPipeError:
        discard(STDERR)
