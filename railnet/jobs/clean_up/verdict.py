"""The result of the rules for clean-up: the action for an object that is deleted once training does not need it any more."""

from enum import Enum
from typing import NamedTuple


class Action(Enum):
    """The action that follows."""

    WAIT = "it stays for now; look again when something changes"
    KEEP = "it stays, and an event says why"
    DELETE = "it goes"


class Verdict(NamedTuple):
    """The action that follows, and why. `seconds` is when to look again even if nothing has changed; None for never."""

    action: Action
    why: str = ""
    seconds: float | None = None
