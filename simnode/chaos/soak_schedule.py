"""The schedule of a soak, which follows from its seed alone: what hostile tenants do, and what fails. Pure: `tests/control_plane/soak` executes it."""

import random
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeVar

Hostility = Literal[
    "large pods",
    "annotations of 240 KiB",
    "rank of 240 KiB",
    "owner of 1 MB",
    "suspended Job of 100,000 pods",
    "dry-run reviews",
    "refused reviews",
    "all host ports",
    "foreign addresses",
    "port on the Service of the names",
    "task without a rank",
    "sticky addresses",
    "owner's foreign UID",
    "member that never comes",
    "min-available beyond the job",
    "gang larger than a leaf",
    "foreign seats",
    "rail renamed and set down",
    "sweep",
]
"""What a hostile tenant does in one step; `sweep` deletes what it has made, so that its quota permits more."""

NodeFault = Literal["daemon killed", "daemon replaced", "containerd restarted", "kubelet restarted"]
"""What happens to the real node."""

Fault = Literal["leader killed", "API server slow", "API server away", "writes refused", "webhook flooded"]

# How often each comes, beside the others. What is large costs etcd and the API server most, and they are not what is tried.
HOSTILITIES: dict[Hostility, int] = {
    "large pods": 2,
    "annotations of 240 KiB": 2,
    "rank of 240 KiB": 2,
    "owner of 1 MB": 1,
    "suspended Job of 100,000 pods": 4,
    "dry-run reviews": 4,
    "refused reviews": 4,
    "all host ports": 4,
    "foreign addresses": 4,
    "port on the Service of the names": 4,
    "task without a rank": 4,
    "sticky addresses": 8,
    "owner's foreign UID": 4,
    "member that never comes": 4,
    "min-available beyond the job": 4,
    "gang larger than a leaf": 4,
    "foreign seats": 4,
    "sweep": 6,
}
FAULTS: dict[Fault, int] = {
    "leader killed": 4,
    "API server slow": 2,
    "API server away": 2,
    "writes refused": 2,
    "webhook flooded": 2,
}
NODE_HOSTILITIES: dict[Hostility, int] = {"rail renamed and set down": 3}
"""What comes beside the others where there is a real node."""

NODE_FAULTS: dict[NodeFault, int] = {
    "daemon killed": 2,
    "daemon replaced": 1,
    "containerd restarted": 1,
    "kubelet restarted": 1,
}
_Kind = TypeVar("_Kind")


class Step(NamedTuple):
    """One step of a hostile tenant; `tenant` is the number of the one that does it."""

    number: int
    kind: Hostility
    tenant: int


class Trouble(NamedTuple):
    """A fault, for how many seconds it lasts, and how many pass before the next one."""

    kind: Fault | NodeFault
    seconds: float
    pause: float


def step(seed: int, number: int, tenants: int, *, real_node: bool = False) -> Step:
    """Return a step of one of so many hostile tenants."""
    choice = _choice(f"{seed}/hostile/{number}")
    kinds = [*HOSTILITIES.items(), *(NODE_HOSTILITIES.items() if real_node else ())]
    return Step(number, _drawn(choice, kinds), choice.randrange(tenants))


def trouble(seed: int, number: int, *, real_node: bool = False) -> Trouble:
    """Return a fault. It is shorter than the time in which a leader that cannot renew its Lease ends, or longer."""
    choice = _choice(f"{seed}/fault/{number}")
    kinds: list[tuple[Fault | NodeFault, int]] = [*FAULTS.items(), *(NODE_FAULTS.items() if real_node else ())]
    return Trouble(_drawn(choice, kinds), choice.uniform(2, 12), choice.uniform(5, 20))


def _choice(of: str) -> random.Random:
    return random.Random(of)  # noqa: S311 - reproducible


def _drawn(choice: random.Random, kinds: Sequence[tuple[_Kind, int]]) -> _Kind:
    """Return one of the kinds, of which each comes as often as its number says."""
    (kind,) = choice.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
    return kind
