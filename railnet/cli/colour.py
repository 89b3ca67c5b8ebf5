"""Colours of words on a terminal. Pure."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

_RESET = "\x1b[0m"


class Colour(StrEnum):
    """The escape sequences that turn a colour on: SGR of ECMA-48."""

    RED = "\x1b[31m"
    GREEN = "\x1b[32m"
    YELLOW = "\x1b[33m"


class Words(NamedTuple):
    """The words that have a colour: where they are all of a table's cell, or end the headline after a colon."""

    colours: Mapping[str, Colour]

    def painted(self, line: str) -> str:
        """Return the line with its words coloured; it has no escape sequence before."""
        words = "|".join(map(re.escape, self.colours))
        return re.sub(rf"(?:^|(?<=  )|(?<=: ))({words})(?=  |$)", self._one, line) if words else line

    def _one(self, match: re.Match[str]) -> str:
        return f"{self.colours[match[0]]}{match[0]}{_RESET}"


PLAIN = Words({})
