"""Amounts of resources in whole numbers: cpu in thousandths of a core, memory in bytes, everything else by the piece.

These are the scheduler's own units (pkg/scheduler/framework, Resource: MilliCPU and Value). Whole numbers are exact there and are added and
compared many times faster than fractions, which the planner does for each node and shape. Requests are rounded up and the resources of a node
are rounded down, so a sum never promises what is not there. `pods` is a resource like the others: a node has 110 of it by default, and each
pod takes one (kueue#4270).
"""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil, floor
from typing import Any

from railnet.objects import quantity
from railnet.objects.pod_requests import pod_requests

Amounts = Mapping[str, int]

CPU, MEMORY = "cpu", "memory"
_PODS = "pods"
MILLI = 1000  # thousandths of a core in a core


def requested(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return what a pod's `spec` takes of its node, `pods` included; a resource of which it takes nothing is left out."""
    amounts = {resource: ceil(amount * _unit(resource)) for resource, amount in pod_requests(spec).items()}
    return {resource: amount for resource, amount in amounts.items() if amount > 0} | {_PODS: 1}


def allocatable(node: Mapping[str, Any]) -> dict[str, int]:
    """Return what a node has for pods now; what is no quantity counts as nothing."""
    return _available((node.get("status") or {}).get("allocatable"))


def capacity(node: Mapping[str, Any]) -> dict[str, int]:
    """Return what a node has when all its devices are well; what is no quantity counts as nothing."""
    return _available((node.get("status") or {}).get("capacity"))


def amount_text(resource: str, amount: int) -> str:
    """Return an amount for people: `1.5` cores, `512Mi` of memory or storage, `8` of anything else."""
    if resource == CPU:
        return quantity.count_text(Fraction(amount, MILLI))
    if resource in (MEMORY, "ephemeral-storage") or resource.startswith("hugepages-"):
        return quantity.bytes_text(Fraction(amount))
    return str(amount)


def is_extended(resource: str) -> bool:
    """Return whether a device plugin or an administrator made the resource: its name has a domain."""
    return "/" in resource


def _available(written: Mapping[str, Any] | None) -> dict[str, int]:
    read = {resource: quantity.parsed(str(text)) for resource, text in (written or {}).items()}
    return {resource: floor(amount * _unit(resource)) for resource, amount in read.items() if amount is not None}


def _unit(resource: str) -> int:
    return MILLI if resource == CPU else 1
