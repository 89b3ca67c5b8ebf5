"""Ends a program without a message when the program that reads its output has ended first, as `head` does."""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from railnet.cli.exit_status import ExitStatus

_STDOUT, STDERR = 1, 2


@contextmanager
def ended_by_a_closed_pipe() -> Iterator[None]:
    """End the program with `CLOSED_PIPE` if what the block has printed has no reader any more."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:  # it is None if it was closed before the start
                sys.stdout.flush()
    except BrokenPipeError as error:
        if not is_of_output(error):
            raise
        discard(_STDOUT)
        sys.exit(ExitStatus.CLOSED_PIPE)


def is_of_output(error: Exception) -> bool:
    """Return whether an error says that nothing reads standard output: a connection's end is a `BrokenPipeError`, too."""
    return isinstance(error, BrokenPipeError) and _has_no_reader(_STDOUT)


def discard(descriptor: int) -> None:
    """Drop what is written from now on, by the interpreter when it ends as well."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _has_no_reader(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))
