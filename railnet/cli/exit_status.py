"""With which number a command ends. docs/command-line.md has this table; a test compares both."""

from enum import IntEnum
from typing import Self


class ExitStatus(IntEnum):
    """The exit statuses of all commands, each with its meaning."""

    meaning: str

    OK = 0, "what was asked is done, and nothing is wrong"
    FAILED = 1, "it could not be done, or what was looked at is wrong: stderr or the report says what"
    USAGE = 2, "the command line is wrong, and nothing was done"
    MISCONFIGURED = (
        3,
        "a file is broken or missing: the node's configuration, a kubeconfig, a job; or a Python package is missing",
    )
    NO_PRIVILEGE = 4, "the user may not do it on this machine: it needs root"
    NO_DAEMON = 5, "no daemon answers on this node"
    UNKNOWN = 6, "nothing is known to be wrong, and something could not be looked at or tested"
    INTERRUPTED = 130, "Ctrl-C, or SIGTERM in a command that takes back what it has begun"
    CLOSED_PIPE = 141, "the program that read the output has ended, as `head` does: no error, and nothing is said"

    def __new__(cls, number: int, meaning: str) -> Self:
        """Make a status of its number and its meaning."""
        status = int.__new__(cls, number)
        status._value_ = number
        status.meaning = meaning
        return status

    @classmethod
    def of(cls, *, well: bool) -> Self:
        """Return the status of a command that is done, by whether all is well."""
        return cls.OK if well else cls.FAILED
