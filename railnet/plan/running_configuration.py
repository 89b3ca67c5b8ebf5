"""The configurations that run: what of them a proposal depends on. Pure."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from deviceplugin.pool_selection import link_layers
from railnet import configuration, strict_yaml
from railnet.errors import Misconfigured
from railnet.plan.configuration_layers import beyond
from railnet.plan.vf_count import RunningNetwork
from railnet.vf.permitted_networks import DEFAULT, SliceIpam
from railnet.vf.pf_selector import LinkType, link_type

_DEEPEST = 50  # mappings and lists in each other; PyYAML recurses to write them again
_LONGEST = 400  # characters of what disagrees


class RunningConfiguration(NamedTuple):
    """What runs.

    Attributes:
        documents: node.yaml by the name of the group of nodes; that of the nodes of no group has an empty name.
        link_types: those that the pools ask for, by the name of the group.
        network: the network `default` of all of them.
        unread: why a configuration was not used; one sentence each.
        labels: the label of each group that has a node, in the order in which groups take nodes; None if it is not known.
        of_nodes: whether each document is that of a node, and the groups are not known.
    """

    documents: Mapping[str, Mapping[str, Any]]
    link_types: Mapping[str, frozenset[LinkType]]
    network: RunningNetwork
    unread: tuple[str, ...] = ()
    labels: Mapping[str, tuple[str, str] | None] = {}
    of_nodes: bool = False

    @property
    def base(self) -> Mapping[str, Any]:
        """Return the configuration of all nodes; {} if it is not known."""
        return self.documents.get("", {})

    def own(self, group: str) -> Mapping[str, Any] | None:
        """Return what a group has beyond the configuration of all nodes; None if that is not known."""
        if not group or self.of_nodes:
            return {}
        if group not in self.documents or "" not in self.documents:
            return None
        return beyond(self.documents[group], self.documents[""])

    def link_types_of(self, group: str) -> frozenset[LinkType]:
        """Return the link types of a group's rails: those of all nodes if its configuration is not known."""
        return self.link_types.get(group) or self.link_types.get("") or _link_types(configuration.Configuration())


def running(
    texts: Mapping[str, str],
    unread: Collection[str] = (),
    labels: Mapping[str, tuple[str, str] | None] | None = None,
    *,
    of_nodes: bool = False,
) -> RunningConfiguration:
    """Read the texts of node.yaml, by the name of the group. What cannot be used is said, and the defaults stand for it."""
    documents: dict[str, Mapping[str, Any]] = {}
    refused = list(unread)
    read: dict[str, configuration.Configuration] = {}
    for group, text in sorted(texts.items()):
        where = f"the configuration that runs{f' in group {group:.63}' if group else ''}"
        try:
            parsed = configuration.parse(text, where)
            documents[group] = _document(text)
            read[group] = parsed
        except (Misconfigured, RecursionError) as error:
            why = "it is nested too deeply" if isinstance(error, RecursionError) else f"{error!s:.300}"
            refused.append(f"{where} was not used: {why}")
    link_types = {group: _link_types(each) for group, each in read.items()}
    return RunningConfiguration(documents, link_types, _network(read), tuple(refused), labels or {}, of_nodes)


def _document(text: str) -> Mapping[str, Any]:
    document: Mapping[str, Any] = strict_yaml.read(text) or {}
    _refuse_deep(document, _DEEPEST)
    return document


def _refuse_deep(value: Any, left: int) -> None:
    if not left:
        raise RecursionError
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _refuse_deep(each, left - 1)


def _link_types(read: configuration.Configuration) -> frozenset[LinkType]:
    return frozenset(map(link_type, link_layers(read.pools)))


def _network(read: Mapping[str, configuration.Configuration]) -> RunningNetwork:
    """Return the network `default` of all configurations; if they disagree, how."""
    by_group = {group: each.networks.by_name[DEFAULT].ipam for group, each in read.items()}
    slices = {group: ipam for group, ipam in by_group.items() if isinstance(ipam, SliceIpam)}
    rails = max((ipam.rails for ipam in slices.values() if ipam.rails is not None), default=None)
    shown = {group: str(ipam.range) if isinstance(ipam, SliceIpam) else "no slice" for group, ipam in by_group.items()}
    if len(set(shown.values())) > 1:
        by_words = [f"{words} {f'in group {group}' if group else 'for all nodes'}" for group, words in shown.items()]
        return RunningNetwork(bool(slices), rails=rails, disagreement=", ".join(by_words)[:_LONGEST])
    if by_group and not slices:
        return RunningNetwork(is_slice=False)
    return RunningNetwork(range=next(iter(slices.values())).range, rails=rails) if slices else RunningNetwork()
