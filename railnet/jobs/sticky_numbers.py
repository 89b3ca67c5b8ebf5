"""Assigns a number in a range to each rank of each job: the number stays with the rank, and makes its address in each part of the range.

Pure: the numbers that are assigned and the pods in, the numbers that are to be assigned out. A number that is assigned is never another
rank's until it is released.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_interface
from typing import Generic, TypeVar

from railnet.vf.permitted_networks import StickyIpam

_Holder = TypeVar("_Holder", bound=Hashable)
_IPV4 = 4


@dataclass(frozen=True, slots=True)
class StickyPod(Generic[_Holder]):
    """A pod that asks for the address of its rank, and has not ended.

    Attributes:
        holder: its job, which the number is assigned to.
        rank: the role and the rank in it, such as `worker-0`.
        number: the number that its annotation names; None without the annotation, or if it names no address of the range.
        leaving: whether it has been deleted and still runs.
    """

    holder: _Holder
    rank: str
    pod: str
    number: int | None = None
    leaving: bool = False


@dataclass(slots=True)
class Assignment(Generic[_Holder]):
    """The number of each rank, and the pods that may have it now.

    Attributes:
        numbers: the numbers by job and rank.
        given: the number of each pod that may have one now.
        waiting: the pods without a number because another pod of their rank, the second one here, has not gone yet.
        short: the pods without a number because all are assigned.
    """

    numbers: dict[_Holder, dict[str, int]]
    given: dict[StickyPod[_Holder], int] = field(default_factory=dict)
    waiting: list[tuple[StickyPod[_Holder], StickyPod[_Holder]]] = field(default_factory=list)
    short: list[StickyPod[_Holder]] = field(default_factory=list)


def numbers(ipam: StickyIpam) -> range:
    """Return all numbers of a range. The first address of a network is no host's, and the last one of IPv4 is not either."""
    part = ipam.parts()[0]
    return range(1, part.num_addresses - (part.version == _IPV4))


def addresses(ipam: StickyIpam, number: int, vfs: int) -> str:
    """Return the annotation of a pod with a number: an address for each of its VFs."""
    return ",".join(f"{part[number]}/{part.prefixlen}" for part in ipam.parts()[:vfs])


def number_of(ipam: StickyIpam, annotation: str) -> int | None:
    """Return the number that an annotation names; None if it names none."""
    first, every = ipam.parts()[0], numbers(ipam)
    try:
        address = ip_interface(annotation.partition(",")[0].strip())
    except ValueError:
        return None
    number = int(address.ip) - int(first.network_address)
    return number if address.version == first.version and number in every else None


def assign(
    every: range, before: Mapping[_Holder, Mapping[str, int]], members: Iterable[StickyPod[_Holder]]
) -> Assignment[_Holder]:
    """Assign a number to each rank that has none.

    A pod that already has a number, while the assignments before do not know its rank, keeps it if it is no other rank's: so lost
    assignments come back from the pods.
    """
    assignment = Assignment({holder: dict(ranks) for holder, ranks in before.items()})
    bearers = _bearers(assignment, sorted(members, key=lambda member: (str(member.holder), member.rank, member.pod)))
    taken = {number for ranks in assignment.numbers.values() for number in ranks.values()}
    for bearer in bearers:
        if _number(assignment, bearer) is None and bearer.number is not None and bearer.number not in taken:
            assignment.numbers.setdefault(bearer.holder, {})[bearer.rank] = bearer.number
            taken.add(bearer.number)
    # A pod may still have a number that is not its rank's: it is no other pod's until that pod is gone.
    taken |= {bearer.number for bearer in bearers if bearer.number is not None}
    free = (number for number in every if number not in taken)
    for bearer in sorted(bearers, key=_order):
        number = _number(assignment, bearer)
        if number is None and not bearer.leaving:
            number = next(free, None)
            if number is None:
                assignment.short.append(bearer)
                continue
            assignment.numbers.setdefault(bearer.holder, {})[bearer.rank] = number
        if number is not None:
            assignment.given[bearer] = number
    return assignment


def _bearers(assignment: Assignment[_Holder], members: Iterable[StickyPod[_Holder]]) -> list[StickyPod[_Holder]]:
    """Return one pod of each rank: the one that has the rank's address, else one that stays; the others wait."""
    of_rank: dict[tuple[_Holder, str], list[StickyPod[_Holder]]] = {}
    for member in members:
        of_rank.setdefault((member.holder, member.rank), []).append(member)
    bearers = []
    for same in of_rank.values():
        number = _number(assignment, same[0])
        first = min(same, key=lambda member: (member.number is None, member.number != number, member.leaving))
        bearers.append(first)
        assignment.waiting += [(member, first) for member in same if member is not first]
    return bearers


def _number(assignment: Assignment[_Holder], member: StickyPod[_Holder]) -> int | None:
    return assignment.numbers.get(member.holder, {}).get(member.rank)


def _order(member: StickyPod[_Holder]) -> tuple[str, tuple[tuple[int, str], ...]]:
    """Sort ranks as numbers, so that neighbours in rank are neighbours in address."""
    return str(member.holder), tuple(_pieces(member.rank))


def _pieces(rank: str) -> Iterator[tuple[int, str]]:
    role, _, numbers_ = rank.rpartition("-")
    yield 0, role
    for text in numbers_.split("."):
        yield (int(text), "") if text.isdecimal() else (0, text)
