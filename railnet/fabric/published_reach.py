"""Which rails of the cluster reach each other, as `railnet validate --publish` leaves it in a ConfigMap. Pure.

Who may write ConfigMaps of Railnet's namespace may have written anything there, so what is kept of the content is bounded and checked. The API server
takes a MiB of it at most (ValidateConfigMap of k8s.io/kubernetes/pkg/apis/core/validation).
"""

import json
from collections.abc import Mapping
from datetime import datetime
from itertools import combinations
from types import MappingProxyType
from typing import Any, NamedTuple

NAMESPACE, NAME = "railnet", "railnet-rail-reach"
KEY = "reach.json"
_FORMAT = 1
MOST_RAILS = 64  # as many as a pod's network-status may name (railnet.objects.network_status)
_MOST_PAIRS = MOST_RAILS * (MOST_RAILS - 1) // 2

Reach = Mapping[frozenset[int], bool]
"""By two rails, whether they reach each other; what is not there is not known."""


class PublishedReach(NamedTuple):
    """What was found out last.

    Attributes:
        date: of the run, such as 2026-11-27; empty if nothing is published.
        trouble: why what is published cannot be read; empty if it can.
    """

    reach: Reach = MappingProxyType({})
    date: str = ""
    trouble: str = ""


UNPUBLISHED = PublishedReach()


def config_map(reach: Reach, moment: datetime) -> dict[str, Any]:
    """Return the ConfigMap that says what was found out, and when."""
    pairs = [{"rails": sorted(rails), "reached": reached} for rails, reached in sorted(reach.items(), key=_numbers)]
    document = {"format": _FORMAT, "found": moment.isoformat(timespec="seconds"), "reach": pairs}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/name": "railnet"}},
        "data": {KEY: json.dumps(document)},
    }


def parse(document: Mapping[str, Any]) -> PublishedReach:
    """Read the ConfigMap. What is not as `config_map` writes it says nothing, and why."""
    try:
        told = json.loads(document["data"][KEY])
        if type(told["format"]) is not int or told["format"] != _FORMAT:
            raise ValueError(f"its format is {told['format']!r:.40}, and this Railnet knows {_FORMAT}")
        if len(told["reach"]) > _MOST_PAIRS:
            raise ValueError(f"it has more than {_MOST_PAIRS} pairs of rails")
        reach = dict(_pair(pair) for pair in told["reach"])
        return PublishedReach(reach, datetime.fromisoformat(told["found"]).date().isoformat())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error!s:.200}"
        return PublishedReach(
            trouble=f"ConfigMap {NAMESPACE}/{NAME} is not as `railnet validate --publish` writes it ({why}), so it is not known "
            "which rails reach each other; publish it again"
        )


def reach_each_other(rails: frozenset[int], others: frozenset[int], reach: Reach) -> bool | None:
    """Return whether a pod with some rails reaches a pod with others; None if that is not known."""
    if rails & others:
        return True
    verdicts = {reach.get(frozenset((rail, other))) for rail in rails for other in others}
    if True in verdicts:
        return True
    return None if None in verdicts else False


def first_apart(rail_sets: list[frozenset[int]], reach: Reach) -> tuple[int, int] | None:
    """Return the positions of the first two sets of rails that do not reach each other; None if there are none."""
    pairs = combinations(range(len(rail_sets)), 2)
    return next((two for two in pairs if _are_apart(rail_sets[two[0]], rail_sets[two[1]], reach)), None)


def _are_apart(rails: frozenset[int], others: frozenset[int], reach: Reach) -> bool:
    """Return whether they are known not to reach each other. It ends at the first two of which that is not known: a pod may name many rails."""
    return rails.isdisjoint(others) and all(
        reach.get(frozenset((rail, other))) is False for rail in rails for other in others
    )


def _pair(pair: Mapping[str, Any]) -> tuple[frozenset[int], bool]:
    rails, reached = pair["rails"], pair["reached"]
    rail, other = rails
    if type(rail) is not int or type(other) is not int or rail == other or type(reached) is not bool:
        raise TypeError("two rails have no numbers, or no verdict")
    return frozenset((rail, other)), reached


def _numbers(told: tuple[frozenset[int], bool]) -> list[int]:
    return sorted(told[0])
