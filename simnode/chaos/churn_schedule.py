"""What a churn does, decided by its seed alone. Pure: what becomes of it is `churn`'s.

A churn is blocks of lives, each block with so many at once. A life is that of one pod, or something that happens to the node.
"""

import random
from dataclasses import dataclass
from typing import Literal, NamedTuple

# What is killed, or done, while an operation runs.
Hit = Literal["executable", "process group", "delegate", "namespace", "DEL"]


class Fate(NamedTuple):
    """What becomes of a pod: what hits its ADD and its DEL, what happens in between, and how it ends.

    `often`: of all lives, in thousandths. `forgotten`: the runtime forgets the sandbox whose ADD was hit, without a DEL.
    """

    often: int
    add: Hit | None = None
    stay: Literal["CHECK", "look", "namespace dies"] | None = None
    delete: Hit | None = None
    forgotten: bool = False
    end: Literal["DEL", "DEL twice", "DEL, and again late", "late DEL", "no DEL"] = "DEL"


POD_FATES = (
    Fate(796),
    Fate(30, stay="CHECK"),
    Fate(30, stay="look"),
    Fate(12, end="DEL twice"),
    Fate(12, end="DEL, and again late"),
    Fate(12, add="executable"),
    Fate(12, add="process group"),
    Fate(12, add="delegate"),
    Fate(5, add="executable", forgotten=True),
    Fate(5, add="process group", forgotten=True),
    Fate(4, add="namespace"),
    Fate(8, add="DEL"),  # the runtime gives up
    Fate(12, delete="executable"),
    Fate(8, delete="process group"),
    Fate(8, delete="delegate"),
    Fate(4, delete="namespace"),
    Fate(8, stay="namespace dies"),
    Fate(5, stay="namespace dies", end="late DEL"),
    Fate(5, stay="namespace dies", end="no DEL"),
)
NodeFate = Literal["GC", "daemon killed", "daemon restarted"]
NODE_FATES: dict[NodeFate, int] = {"GC": 6, "daemon killed": 5, "daemon restarted": 1}
_FATES: tuple[Fate | NodeFate, ...] = (*POD_FATES, *NODE_FATES)
_OFTEN = (*(fate.often for fate in POD_FATES), *NODE_FATES.values())
# How many VFs a pod has → how often, of 100.
_VFS = {0: 4, 1: 80, 2: 12, 4: 3, 8: 1}
_PORTS = 0.02  # of all pods have a host port
_AT_ONCE = {1: 1, 2: 1, 4: 2, 8: 4, 16: 6, 32: 6}
_LIVES_EACH, _LIVES = 20, 250  # of a block: for each that is at once, and at most


class Life(NamedTuple):
    """One life.

    `moment` is when what hits it comes: in parts of the time that such an operation usually takes. `pick` chooses one of
    several things that may be killed, from 0 to 1. `late` is after how many lives a late DEL comes: its VFs are others' by then.
    """

    number: int
    fate: Fate | NodeFate
    vfs: int
    host_port: int | None
    moment: float
    pick: float
    late: int


@dataclass(frozen=True, slots=True)
class Block:
    """Lives of which so many are lived at once; what they leave is looked at after them."""

    at_once: int
    lives: tuple[Life, ...]


def life(seed: int, number: int) -> Life:
    """Decide one life."""
    dice = random.Random(f"{seed}/life/{number}")  # noqa: S311 - reproducible
    (fate,) = dice.choices(_FATES, _OFTEN)
    (vfs,) = dice.choices(list(_VFS), list(_VFS.values()))
    port = 20000 + number % 10000 if dice.random() < _PORTS else None
    if isinstance(fate, Fate) and fate.stay == "CHECK":
        port = None  # portmap of Debian 12 looks for rules of IPv6, too, and there are none
    return Life(number, fate, vfs, port, dice.uniform(0, 1.2), dice.random(), dice.randint(20, 100))


def block(seed: int, number: int, first: int, at_most: int) -> Block:
    """Decide a block whose first life has this number; `at_most` so many lives at once."""
    dice = random.Random(f"{seed}/block/{number}")  # noqa: S311 - reproducible
    (at_once,) = dice.choices(list(_AT_ONCE), list(_AT_ONCE.values()))
    at_once = min(at_once, at_most)
    count = min(_LIVES, _LIVES_EACH * at_once)
    return Block(at_once, tuple(life(seed, first + offset) for offset in range(count)))
