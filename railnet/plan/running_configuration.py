"""The configurations that run: what of them a proposal depends on, and how the proposal differs from them. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from deviceplugin.pool_selection import link_layers
from railnet import configuration, strict_yaml
from railnet.errors import Misconfigured
from railnet.plan.node_facts import SeenNode
from railnet.plan.node_kinds import names
from railnet.plan.proposal import Proposal
from railnet.plan.values_text import yaml_of
from railnet.plan.vf_count import RunningNetwork
from railnet.vf.permitted_networks import DEFAULT, SliceIpam
from railnet.vf.pf_selector import LinkType, link_type

_OF_PROPOSAL = ("rails", "provision")  # keys that are compared as a whole, also where the proposal leaves them out
_DEFAULTS = {"networks.default.ipam.type": "slice", "networks.default.ipam.range": str(RunningNetwork().range)}
_MOST_LINES = 40  # of one value


class RunningConfiguration(NamedTuple):
    """What runs.

    Attributes:
        documents: node.yaml by the name of the group of nodes; that of the nodes of no group has an empty name.
        link_types: those that pools ask for.
        unread: why a configuration was not used; one sentence each.
    """

    documents: Mapping[str, Mapping[str, Any]]
    link_types: frozenset[LinkType]
    network: RunningNetwork
    unread: tuple[str, ...] = ()


class Difference(NamedTuple):
    """Nodes, and how one key of their node.yaml differs; None is a key that is absent."""

    nodes: tuple[str, ...]
    key: str
    running: Any
    proposed: Any


def running(texts: Mapping[str, str], unread: Collection[str] = ()) -> RunningConfiguration:
    """Read the texts of node.yaml, by the name of the group. What cannot be used is said, and the defaults stand for it."""
    documents: dict[str, Mapping[str, Any]] = {}
    refused = list(unread)
    read = []
    for group, text in sorted(texts.items()):
        where = f"the configuration that runs{f' in group {group:.63}' if group else ''}"
        try:
            document = strict_yaml.read(text) or {}
            read.append(configuration.parse(text, where))
        except Misconfigured as error:
            refused.append(f"{where} was not used: {error!s:.300}")
            continue
        documents[group] = document
    layers = frozenset(layer for each in read or [configuration.Configuration()] for layer in link_layers(each.pools))
    return RunningConfiguration(documents, frozenset(map(link_type, layers)), _network(read), tuple(refused))


def _network(read: Collection[configuration.Configuration]) -> RunningNetwork:
    for each in read:
        network = each.networks.by_name.get(DEFAULT)
        if network is not None and not isinstance(network.ipam, SliceIpam):
            return RunningNetwork(is_slice=False)
        if network is not None and isinstance(network.ipam, SliceIpam):
            return RunningNetwork(range=network.ipam.range)
    return RunningNetwork()


def differences(proposal: Proposal, nodes: Collection[SeenNode], now: RunningConfiguration) -> tuple[Difference, ...]:
    """Return how the proposal differs from what runs on the nodes that were seen; other keys stay as they are."""
    own = {node.name: group.configuration for group in proposal.groups for node in group.kind.nodes}
    by_change: dict[str, list[str]] = defaultdict(list)
    changes: dict[str, tuple[str, Any, Any]] = {}
    for node in sorted(nodes, key=lambda each: each.name):
        document = now.documents.get(node.group)
        if document is None:
            continue
        for key, old, new in _changes(document, {**own.get(node.name, {}), **proposal.common}):
            change = repr((key, old, new))
            changes[change] = (key, old, new)
            by_change[change].append(node.name)
    return tuple(Difference(tuple(by_change[change]), *changes[change]) for change in changes)


def _changes(document: Mapping[str, Any], proposed: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for key in _OF_PROPOSAL:
        if document.get(key) != proposed.get(key) and not _is_default(key, document.get(key), proposed.get(key)):
            yield key, document.get(key), proposed.get(key)
    for name, network in proposed.get("networks", {}).items():
        for path, new in _leaves(network, f"networks.{name}"):
            old = _at(document, path) or _DEFAULTS.get(path)
            if old != new:
                yield path, old, new


def _is_default(key: str, old: Any, new: Any) -> bool:
    return (
        (key == "rails" and {old, new} == {None, "auto"})
        if not isinstance(old, list | dict) and not isinstance(new, list | dict)
        else not (old or new)
    )


def _leaves(mapping: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, value in mapping.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}.{key}")
        else:
            yield f"{path}.{key}", value


def _at(document: Any, path: str) -> Any:
    for key in path.split("."):
        document = document.get(key) if isinstance(document, dict) else None
    return document


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
