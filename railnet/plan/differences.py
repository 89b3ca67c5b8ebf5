"""How a proposal differs from the configurations that run, key by key. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from railnet.plan.configuration_layers import merged, plain_rails
from railnet.plan.node_facts import SeenNode
from railnet.plan.node_kinds import names
from railnet.plan.proposal import Proposal
from railnet.plan.running_configuration import RunningConfiguration
from railnet.plan.values_text import yaml_of
from railnet.plan.vf_count import RunningNetwork

_WHOLE = ("rails", "provision")  # keys that are shown as a whole
_DEFAULTS: Mapping[str, Any] = {
    "networks.default.ipam.type": "slice",
    "networks.default.ipam.range": str(RunningNetwork().range),
}
_OF_NO_NODE = frozenset(("apiVersion", "kind"))
_MOST_LINES = 40  # of one value


class Difference(NamedTuple):
    """Nodes, and how one key of their node.yaml differs; None is a key that is absent."""

    nodes: tuple[str, ...]
    key: str
    running: Any
    proposed: Any


def differences(proposal: Proposal, nodes: Collection[SeenNode], now: RunningConfiguration) -> tuple[Difference, ...]:
    """Return how the node.yaml of each node that was seen would differ from the one that runs."""
    by_change: dict[str, list[str]] = defaultdict(list)
    by_text: dict[str, tuple[str, Any, Any]] = {}
    for node in sorted(nodes, key=lambda each: each.name):
        document = now.documents.get(node.group)
        if document is None:
            continue
        for key, old, new in changes(document, _proposed(node, proposal, now)):
            change = repr((key, old, new))
            by_text[change] = (key, old, new)
            by_change[change].append(node.name)
    return tuple(Difference(tuple(by_change[change]), *by_text[change]) for change in by_text)


def _proposed(node: SeenNode, proposal: Proposal, now: RunningConfiguration) -> Mapping[str, Any]:
    """Return the node.yaml that a node would have: the values over those that run, as Helm merges them, and its group's part over it."""
    values = proposal.values["node"]
    if "groups" not in values:
        return merged(now.documents[node.group], values.get("configuration", {}))
    is_known = "" in now.documents and not now.of_nodes
    common = merged(now.documents["" if is_known else node.group], values.get("configuration", {}))
    group = proposal.group_of(node)
    own: Mapping[str, Any] = next((each["configuration"] for each in values["groups"] if each["name"] == group), {})
    return merged(common, own)


def changes(document: Mapping[str, Any], proposed: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield each key by which a node.yaml differs from another one, with both values; a key that is absent has its default."""
    if plain_rails(document.get("rails")) != plain_rails(proposed.get("rails")):
        yield "rails", document.get("rails"), proposed.get("rails")
    if (document.get("provision") or []) != (proposed.get("provision") or []):
        yield "provision", document.get("provision"), proposed.get("provision")
    now, then = dict(_leaves(document)), dict(_leaves(proposed))
    for path in dict.fromkeys((*then, *now)):
        old, new = (leaves.get(path, _DEFAULTS.get(path)) for leaves in (now, then))
        if old != new:
            yield path, old, new


def _leaves(mapping: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in mapping.items():
        if not path and (key in _WHOLE or key in _OF_NO_NODE):
            continue
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def lines(found_differences: Collection[Difference], unread: Collection[str] = ()) -> Iterator[str]:
    """Yield the differences for a person, and what could not be compared."""
    yield from (f"not compared: {sentence}" for sentence in unread)
    if not found_differences and not unread:
        yield "The proposal is what runs."
    for difference in found_differences:
        yield f"{names(difference.nodes)}: {difference.key}"
        yield from _value("-", difference.running)
        yield from _value("+", difference.proposed)


def _value(sign: str, value: Any) -> Iterator[str]:
    if value is None:
        yield f"{sign} (absent)"
        return
    listed = yaml_of(value).splitlines()
    yield from (f"{sign} {line}" for line in listed[:_MOST_LINES])
    if len(listed) > _MOST_LINES:
        yield f"{sign} … ({len(listed) - _MOST_LINES} lines more)"
