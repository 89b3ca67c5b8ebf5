"""The labels by which a node says where its rails are in the fabric: for schedulers, and for the placement of gangs.

Pure: from what is known of each rail, and the labels that the node has, to the labels that must change.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from railnet.vf.guid import Guid

LEAF = "railnet.io/leaf"
RAILS = "railnet.io/rails"
RATE = "railnet.io/rate"
_LEAF_OF_RAIL = re.compile(r"railnet\.io/rail(0|[1-9][0-9]{0,2})-leaf")
_GUID = re.compile(r"[0-9a-f]{16}")
_RATE = re.compile(r"[0-9]{1,5}(\.[0-9])?")
_DIGEST_DIGITS = 12


class Leaf(NamedTuple):
    """A leaf switch, and the port of the switch that a rail's cable hangs on."""

    switch: Guid
    port: int

    def __str__(self) -> str:
        return f"{leaf_digits(self)}/{self.port}"


class RailPlace(NamedTuple):
    """The node knows this of one rail's place in the fabric.

    Attributes:
        leaf: the leaf switch; None if there is none, or none is known.
        rate: the rate of the port in Gb/s, such as `400` or `2.5`; None while it is not known.
        reason: why there is no leaf; None if there is one.
        lasting: whether `reason` says that the rail has no leaf. Otherwise its leaf is only not known now.
        absent: the node does not show the rail's card.
    """

    leaf: Leaf | None = None
    rate: str | None = None
    reason: str | None = None
    lasting: bool = False
    absent: bool = False


def leaf_of_rail(rail: int) -> str:
    """Return the key of the label that names one rail's leaf switch."""
    return f"railnet.io/rail{rail}-leaf"


def leaf_digits(leaf: Leaf) -> str:
    """Return the node GUID of a leaf switch as labels and attributes have it: 16 hexadecimal digits."""
    return f"{leaf.switch.value:016x}"


def is_ours(key: str) -> bool:
    """Return whether a label of a node is one of these; charts/railnet/templates/node/node-object-policy.yaml says the same."""
    return key in (LEAF, RAILS, RATE) or _LEAF_OF_RAIL.fullmatch(key) is not None


def changes(node_labels: Mapping[str, str], places: Mapping[int, RailPlace]) -> dict[str, str | None]:
    """Return the labels of a node that must change, and None for those that must go; other labels are not touched.

    Args:
        node_labels: all labels that the node has.
        places: what is known of each rail, by its number. Of a rail whose leaf is not known now the node's own label is believed: a
            port that is down for a moment hangs on the same switch when it is back.
    """
    wanted = _wanted(node_labels, places)
    keys = sorted({key for key in node_labels if is_ours(key)} | wanted.keys())
    return {key: wanted.get(key) for key in keys if node_labels.get(key) != wanted.get(key)}


def _wanted(node_labels: Mapping[str, str], places: Mapping[int, RailPlace]) -> dict[str, str]:
    leaves = {rail: _leaf(node_labels, rail, place) for rail, place in sorted(places.items())}
    # A card that never was here has no label: it is not waited for, such as a storage card that was taken out.
    counted = {rail: leaf for rail, leaf in leaves.items() if leaf is not None or not places[rail].absent}
    known = {rail: leaf for rail, leaf in counted.items() if leaf is not None}
    present = sum(not place.absent for place in places.values())
    labels = {leaf_of_rail(rail): leaf for rail, leaf in known.items()}
    if known and len(known) == len(counted):
        labels[LEAF] = _together(known)
    if present:
        labels[RAILS] = str(present)
        labels.update(_rate(node_labels, places.values()))
    return labels


def _leaf(node_labels: Mapping[str, str], rail: int, place: RailPlace) -> str | None:
    if place.leaf is not None:
        return leaf_digits(place.leaf)
    before = node_labels.get(leaf_of_rail(rail), "")
    return before if not place.lasting and _GUID.fullmatch(before) else None


def _together(leaves: Mapping[int, str]) -> str:
    """Return one value for all rails: the only switch, or a digest of which rail hangs on which switch.

    In a fabric with one leaf switch for each rail, the nodes of one group have the same switches in the same order.
    """
    switches = set(leaves.values())
    if len(switches) == 1:
        return switches.pop()
    text = ",".join(f"{rail}={leaf}" for rail, leaf in sorted(leaves.items()))
    return f"{len(switches)}-leaves-{hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]}"


def _rate(node_labels: Mapping[str, str], places: Iterable[RailPlace]) -> dict[str, str]:
    """Return the lowest rate of the rails; while none is known, the node's label stays."""
    rates = [place.rate for place in places if place.rate is not None]
    if rates:
        return {RATE: min(rates, key=float)}
    return {RATE: node_labels[RATE]} if _RATE.fullmatch(node_labels.get(RATE, "")) else {}


def parse_rate(text: str) -> str:
    """Return the number of `/sys/class/infiniband/<dev>/ports/1/rate`: `400` of `400 Gb/sec (4X NDR)`.

    Raises:
        ValueError: the text has another form.
    """
    number, _, unit = text.partition(" ")
    if _RATE.fullmatch(number) is None or not unit.startswith("Gb/sec"):
        raise ValueError(f"{text!r:.80} is not a rate of the form 400 Gb/sec (4X NDR)")
    return number.removesuffix(".0").lstrip("0") or "0"
