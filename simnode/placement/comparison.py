"""The policies that are compared, each on the same gangs."""

from dataclasses import dataclass
from functools import partial

from railnet.gangs.placement.scheduling_pass import Rules
from railnet.jobs.gang.request import Constraint
from simnode.placement.fabric import Fabric
from simnode.placement.gangs import arriving
from simnode.placement.judge import violations
from simnode.placement.other_policies import BestFit, FirstFit, FirstPodDecides, Spread
from simnode.placement.planner import LEAF, Planner
from simnode.placement.policy import MakePolicy
from simnode.placement.simulation import Result, simulate


class Violated(Exception):
    """A run in which something happened that must never happen; the message says what."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy under its name in the table; `one_leaf`: its gangs require one leaf."""

    name: str
    policy: MakePolicy
    one_leaf: bool = False


def railnet(constraint: Constraint, *, prefers_nodes: bool = True, pins_leaf: bool = True) -> MakePolicy:
    """Return the planner, with this constraint for all gangs."""
    rules = Rules(apart=not prefers_nodes)
    return partial(Planner, constraint=constraint, rules=rules, prefers_nodes=prefers_nodes, pins_leaf=pins_leaf)


def prefers_leaf(relax_after: float) -> Constraint:
    """Return the constraint of gangs that prefer one leaf, and take several after so many seconds."""
    return Constraint(preferred=(LEAF,), relax_after=relax_after)


REQUIRES_LEAF = Constraint(required=(LEAF,))
RELAXED_AFTER_30 = Contender("Railnet, relaxed after 30 s", railnet(prefers_leaf(30.0)))
CONTENDERS = (
    Contender("spread (Kubernetes' default)", Spread),
    Contender("required podAffinity", FirstPodDecides, one_leaf=True),
    Contender("first-fit leaf, then anywhere", FirstFit),
    Contender("model of best fit, after 30 s", partial(BestFit, relax_after=30.0)),
    Contender("Railnet by leaf alone, after 30 s", railnet(prefers_leaf(30.0), prefers_nodes=False)),
    Contender("Railnet, relaxed at once", railnet(prefers_leaf(0.0))),
    RELAXED_AFTER_30,
    Contender("Railnet, relaxed after 100 s", railnet(prefers_leaf(100.0))),
    Contender("Railnet, required leaf", railnet(REQUIRES_LEAF), one_leaf=True),
)


def judged(fabric: Fabric, contender: Contender, seed: int, count: int) -> Result:
    """Run so many gangs once.

    Raises:
        Violated: a node was over-booked, a gang was bound in part or never, or not in the leaf that it requires.
    """
    gangs = arriving(fabric, seed, count)
    result = simulate(fabric, gangs, contender.policy, seed)
    if wrong := list(violations(fabric, gangs, result, one_leaf=contender.one_leaf)):
        raise Violated(f"{contender.name} on {fabric.name}, seed {seed}: {'; '.join(wrong[:5])}")
    return result
