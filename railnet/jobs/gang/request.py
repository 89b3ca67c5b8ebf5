"""A pod's gang, as its labels and annotations say it: read by `railnet.jobs.gang.recogniser`, used by the planner."""

from dataclasses import dataclass

from railnet.jobs.gang.node_terms import NodeTerm


@dataclass(frozen=True, slots=True)
class Constraint:
    """The nodes and domains that a gang may have.

    Attributes:
        name: the author's name for it; may be empty.
        required: label keys; all members are on nodes with the same values of all of them. Empty: anywhere.
        preferred: label keys from the smallest domain to the largest; the first that holds the whole gang is taken.
        nodes: terms of which one must hold for each node; empty: every node.
        relax_after: seconds after which a gang that fits into no preferred domain is spread over as few as possible; None: at once.
    """

    name: str = ""
    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    nodes: tuple[NodeTerm, ...] = ()
    relax_after: float | None = None


@dataclass(frozen=True, slots=True, weakref_slot=True)
class GangRequest:
    """A gang, as one pod says it.

    Attributes:
        name: the gang's name; gangs of two namespaces are two gangs.
        min_available: how many members must start together; None: all pods of the job.
        constraint: where; None for a gang without topology.
    """

    name: str
    min_available: int | None = None
    constraint: Constraint | None = None
