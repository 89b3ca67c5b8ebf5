"""Checks of what is offered and asked for by DRA, for `railnet doctor --pod` and `--cluster`. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from railnet.doctor.finding_kinds import Finding
from railnet.gangs.device_claims import amounts, device_claim
from railnet.gangs.slice_devices import (
    BY_CLAIM,
    PoolSlice,
    SliceDevices,
    is_complete,
    newest,
)
from railnet.objects.pod_claims import PodClaim
from railnet.objects.resource_amounts import Amounts

JsonObject = Mapping[str, Any]
_MOST_NAMED = 5  # that a finding names


class ClaimOfPod(NamedTuple):
    """A claim that a pod names, and the claim as the API server has it; None if it is not made, does not exist, or cannot be read."""

    named: PodClaim
    document: JsonObject | None


def devices_of(slices: Iterable[PoolSlice]) -> SliceDevices:
    """Return what nodes offer by slices."""
    devices = SliceDevices()
    for part in slices:
        devices.change_slice(None, part)
    return devices


def asked_by_claims(claims: Iterable[ClaimOfPod], resources: frozenset[str]) -> Amounts:
    """Return what the claims of a pod take of its node."""
    taken: Counter[str] = Counter()
    for claim in claims:
        if claim.document is not None:
            taken.update(amounts(device_claim(claim.document), resources))
    return taken


def unmade_claims(claims: Iterable[ClaimOfPod]) -> Iterator[str]:
    """Yield the claims of a pod without which the scheduler does not look at it, in words."""
    for named, document in claims:
        if not named.is_made:
            yield f"no claim is made of the template {named.template} yet"
        elif named.claim and document is None:
            yield f"the claim {named.claim} does not exist"


def unready_claims(claims: Iterable[ClaimOfPod], pod_uid: str) -> Iterator[str]:
    """Yield why kubelet does not start a pod that has a node, by its claims, in words."""
    for named, document in claims:
        if document is None:
            continue
        status = document.get("status") or {}
        reserved = [consumer.get("uid") for consumer in status.get("reservedFor") or ()]
        if not status.get("allocation"):
            yield f"the claim {named.claim} is not allocated"
        elif pod_uid not in reserved:
            yield f"the claim {named.claim} is reserved for {len(reserved)} other pods, and not for this one"


def asks_for_nothing_else(claims: Iterable[ClaimOfPod], rails: frozenset[str]) -> bool:
    """Return whether each claim that a pod names asks for VFs: then it is VFs that cannot be allocated."""
    documents = (claim.document for claim in claims if claim.document is not None)
    return all(amounts(device_claim(document), rails) for document in documents)


def tainted_nodes(devices: SliceDevices, nodes: Iterable[str], wanted: Amounts) -> Iterator[str]:
    """Yield the nodes with tainted devices that would have enough for a pod if no device had a taint, in words."""
    for node in nodes:
        now, at_best = devices.of(node)
        tainted = at_best.get(BY_CLAIM, 0) - now.get(BY_CLAIM, 0)
        if tainted > 0 and all(at_best.get(resource, 0) >= amount for resource, amount in wanted.items()):
            yield f"{node} ({tainted} of {at_best[BY_CLAIM]})"


def incomplete_pools(slices: Iterable[PoolSlice]) -> Iterator[Finding]:
    """Find nodes of whose slices the scheduler takes no device."""
    for pool in newest(slices):
        if not is_complete(pool):
            counts = sorted({part.slices for part in pool})
            seen = f"generation {pool[0].generation} has {len(pool)} of {' or '.join(map(str, counts))} slices"
            yield Finding("slices-incomplete", pool[0].node, seen)


def both_ways(allocatable: Mapping[str, Amounts], devices: SliceDevices) -> Iterator[Finding]:
    """Find nodes that offer one resource by the device plugin and by slices."""
    for node, has in sorted(allocatable.items()):
        for resource, amount in sorted(devices.of(node).now.items()):
            if has.get(resource, 0) > 0:
                seen = f"{resource}: {has[resource]} allocatable, and {amount} devices in ResourceSlices"
                yield Finding("node-offers-both-ways", node, seen)


def some(named: Sequence[str]) -> str:
    """Return names in one text; of many, the first and how many more there are."""
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return ", ".join(named[:_MOST_NAMED]) + more
