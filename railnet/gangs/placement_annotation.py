"""The annotation that says where a pod was placed: what a new leader derives the state of a gang from.

A pod's author may write it, too, so what is read is checked. It harms the author's own gang only.
"""

import json
from enum import StrEnum
from typing import Any, NamedTuple

from railnet.gangs.placement.gang import Domain, domain
from railnet.jobs.gang.gang_constraint import MOST_KEYS

_MOST_CHARACTERS = 8192  # so many keys, of 317 characters each, with values of 63
_MOST_ATTEMPTS = 1000
_MOST_NAME = 253  # of a node: a DNS subdomain
_MOST_VALUE = 63  # of the value of a label
_LATEST = 1 << 40  # in seconds since 1970: no leader writes a later moment


class Evicted(StrEnum):
    """The reason why the gang of a pod is being evicted."""

    FAILED = "failed"  # a member has found no node
    PREEMPTED = "preempted"
    LAPSED = "lapsed"  # members that were to be created later never came
    SPLIT = "split"  # members are in several domains, of which one is required


class Placed(NamedTuple):
    """The place of a pod.

    Attributes:
        attempt: which try of its gang that was; the first is 1.
        evicted: set on one pod before its gang is evicted, and this pod goes last: a leader that dies half-way has a successor that goes on.
        node: the node that it was given; empty if it is not known. It is kept for the pod until that is bound.
        reserved_until: set if the gate was opened before all members existed: until when room is kept for the others, in seconds since 1970.
    """

    domain: Domain
    attempt: int
    evicted: Evicted | None = None
    node: str = ""
    reserved_until: int | None = None


def written(placed: Placed) -> str:
    """Return the annotation's text."""
    seat = {"node": placed.node} if placed.node else {}
    mark = {} if placed.evicted is None else {"evicted": placed.evicted.value}
    until = {} if placed.reserved_until is None else {"reservedUntil": placed.reserved_until}
    return json.dumps(
        {"domain": dict(placed.domain), "attempt": placed.attempt, **seat, **until, **mark}, separators=(",", ":")
    )


def parse(text: str) -> Placed | None:
    """Return what an annotation says; None if it says nothing that Railnet writes."""
    if len(text) > _MOST_CHARACTERS:
        return None
    try:
        annotation = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(annotation, dict):
        return None
    where, attempt = _domain(annotation.get("domain")), annotation.get("attempt")
    if where is None or isinstance(attempt, bool) or not isinstance(attempt, int):
        return None
    mark, node = annotation.get("evicted"), annotation.get("node", "")
    if not isinstance(node, str) or not node.isascii() or len(node) > _MOST_NAME:
        return None
    evicted = Evicted(mark) if mark in tuple(Evicted) else None
    until = _moment(annotation.get("reservedUntil"))
    return Placed(where, attempt, evicted, node, until) if 1 <= attempt <= _MOST_ATTEMPTS else None


def _moment(seconds: Any) -> int | None:
    is_number = isinstance(seconds, int) and not isinstance(seconds, bool)
    return seconds if is_number and 0 < seconds < _LATEST else None


def _domain(labels: Any) -> Domain | None:
    if not isinstance(labels, dict) or len(labels) > MOST_KEYS:
        return None
    return domain(labels) if all(key.isascii() and _is_value(value) for key, value in labels.items()) else None


def _is_value(value: Any) -> bool:
    """Return whether a label may have this value. JSON can hold lone surrogates, which no event and no terminal can show."""
    return isinstance(value, str) and value.isascii() and len(value) <= _MOST_VALUE
