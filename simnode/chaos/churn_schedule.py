"""The schedule of a churn, which follows from its seed alone. Pure: `churn` executes it.

A churn is a sequence of blocks, and each block runs a number of steps at once. A step is one pod from its admission to
its end, or an event of the node.
"""

import random
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

# The fault that is injected while an operation runs: the kill of this victim, or a DEL at the same time.
Fault = Literal["executable", "process group", "delegate", "namespace", "DEL"]


class PodPlan(NamedTuple):
    """The plan of a pod: the faults in its ADD and its DEL, the event in between, and its end.

    `thousandths`: the share of this plan among all steps. `forgotten`: after the fault in ADD, the runtime forgets the
    sandbox, without a DEL.
    """

    thousandths: int
    add: Fault | None = None
    between: Literal["CHECK", "look", "namespace dies", "hostile"] | None = None
    delete: Fault | None = None
    forgotten: bool = False
    end: Literal["DEL", "DEL twice", "DEL, and again late", "late DEL", "no DEL"] = "DEL"


POD_PLANS = (
    PodPlan(772),
    PodPlan(30, between="CHECK"),
    PodPlan(30, between="look"),
    PodPlan(8, between="hostile"),  # the pod has NET_ADMIN and does what it can to its rails' links
    PodPlan(12, end="DEL twice"),
    PodPlan(12, end="DEL, and again late"),
    PodPlan(12, add="executable"),
    PodPlan(12, add="process group"),
    PodPlan(12, add="delegate"),
    PodPlan(5, add="executable", forgotten=True),
    PodPlan(5, add="process group", forgotten=True),
    PodPlan(4, add="namespace"),
    PodPlan(8, add="DEL"),  # the runtime gives up
    PodPlan(12, delete="executable"),
    PodPlan(8, delete="process group"),
    PodPlan(8, delete="delegate"),
    PodPlan(4, delete="namespace"),
    PodPlan(8, between="namespace dies"),
    PodPlan(5, between="namespace dies", end="late DEL"),
    PodPlan(5, between="namespace dies", end="no DEL"),
)
# Hardware that fails or lies, a full disk, and a hostile neighbour: `disturbances` has them.
Disturbance = Literal[
    "card gone",
    "PF's value bad",
    "VF's value bad",
    "PF's file hung",
    "VF's file hung",
    "/run/railnet full",
    "health port flooded",
]
NodeEvent = Literal["GC", "daemon killed", "daemon restarted", "webhook flooded"] | Disturbance
DISTURBANCES: tuple[Disturbance, ...] = get_args(Disturbance)
_OF_DAEMON: dict[NodeEvent, int] = {"GC": 6, "daemon killed": 5, "daemon restarted": 1}
_OF_NODE: dict[NodeEvent, int] = dict.fromkeys(DISTURBANCES, 2)
_OF_WEBHOOK: dict[NodeEvent, int] = {"webhook flooded": 2}  # `webhook_flood` has it
NODE_EVENTS: dict[NodeEvent, int] = {**_OF_DAEMON, **_OF_NODE, **_OF_WEBHOOK}
_PLANS: tuple[PodPlan | NodeEvent, ...] = (*POD_PLANS, *NODE_EVENTS)
_THOUSANDTHS = (*(plan.thousandths for plan in POD_PLANS), *NODE_EVENTS.values())
# Number of VFs of a pod → percent of the pods.
_VFS = {0: 4, 1: 80, 2: 12, 4: 3, 8: 1}
_PORTS = 0.02  # share of the pods that have a host port
_AT_ONCE = {1: 1, 2: 1, 4: 2, 8: 4, 16: 6, 32: 6}
_STEPS_EACH, _STEPS = 20, 250  # steps of a block: for each step at once, and at most


class Step(NamedTuple):
    """One step of a churn.

    `moment` is the time of the fault, as a part of the time that such an operation usually takes. `pick`, from 0 to 1,
    chooses one of several processes to kill. `late` is the number of steps before a late DEL comes; other pods have its
    VFs by then.
    """

    number: int
    plan: PodPlan | NodeEvent
    vfs: int
    host_port: int | None
    moment: float
    pick: float
    late: int


@dataclass(frozen=True, slots=True)
class Block:
    """Steps of which `at_once` run at the same time; the node is judged after them."""

    at_once: int
    steps: tuple[Step, ...]


def step(seed: int, number: int) -> Step:
    """Return the step with this number."""
    choice = random.Random(f"{seed}/life/{number}")  # noqa: S311 - reproducible
    (plan,) = choice.choices(_PLANS, _THOUSANDTHS)
    (vfs,) = choice.choices(list(_VFS), list(_VFS.values()))
    port = 20000 + number % 10000 if choice.random() < _PORTS else None
    if isinstance(plan, PodPlan) and plan.between == "CHECK":
        port = None  # CHECK of Debian 12's portmap wants rules of IPv6, too, and there are none
    return Step(number, plan, vfs, port, choice.uniform(0, 1.2), choice.random(), choice.randint(20, 100))


def block(seed: int, number: int, first: int, at_most: int) -> Block:
    """Return block `number`, whose first step has the number `first`, with at most `at_most` steps at once."""
    choice = random.Random(f"{seed}/block/{number}")  # noqa: S311 - reproducible
    (at_once,) = choice.choices(list(_AT_ONCE), list(_AT_ONCE.values()))
    at_once = min(at_once, at_most)
    count = min(_STEPS, _STEPS_EACH * at_once)
    return Block(at_once, tuple(step(seed, first + offset) for offset in range(count)))
