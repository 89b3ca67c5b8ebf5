"""Groups of nodes that run and are not proposed anew: `node.groups` is replaced as a whole, so they must be in it again. Pure."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from railnet.plan.configuration_layers import beyond, merged, rails_over, without
from railnet.plan.node_facts import SeenNode, UnseenNode
from railnet.plan.node_kinds import Remarks
from railnet.plan.running_configuration import RunningConfiguration

Label = tuple[str, str]
_NOTHING: Mapping[str, Any] = {
    "rails": "auto",
    "provision": [],
}  # what a node does without the key (docs/configuration.md)


class Outside(NamedTuple):
    """The nodes that no proposed group has.

    Attributes:
        others: those that were seen, without a card.
        unseen: those that did not answer.
        unasked: the labels of those that were not asked for, by their names; None if all nodes were.
        left: the groups that planned nodes are of now. Without nodes outside they have none any more.
    """

    others: Collection[SeenNode] = ()
    unseen: Collection[UnseenNode] = ()
    unasked: Mapping[str, Mapping[str, str]] | None = None
    left: frozenset[str] = frozenset()

    @property
    def are_all_seen(self) -> bool:
        """Return whether every node was asked and answered."""
        return not self.unseen and self.unasked is None

    def labels(self) -> Iterator[Mapping[str, str]]:
        """Yield the labels of each node."""
        yield from (node.labels for node in self.others)
        yield from (node.labels for node in self.unseen)
        yield from (self.unasked or {}).values()


class KeptGroup(NamedTuple):
    """A group that runs, as the values have it again."""

    name: str
    label: Label
    configuration: Mapping[str, Any]


def kept_groups(
    proposed: Mapping[str, Label],
    outside: Outside,
    running: RunningConfiguration,
    common: Mapping[str, Any],
    remarks: Remarks,
) -> tuple[KeptGroup, ...]:
    """Return the groups that run, are not those of planned nodes alone, and are not among the proposed ones.

    Args:
        proposed: the label of each proposed group, by its name.
        outside: the nodes of no proposed group.
        running: what runs.
        common: what is proposed for all nodes.
        remarks: a group that cannot be kept is said here.
    """
    if running.of_nodes:
        remarks.wrong.append(
            "a bundle does not say which groups of nodes there are, and what they have beside rails, provision and networks: the values replace "
            "all groups, so plan on the cluster, or add what your groups have"
        )
        return ()
    kept = []
    for name, label in staying_groups(outside, running).items():
        if name in proposed or label in proposed.values():
            continue
        document = running.documents.get(name)
        if label is None or document is None or running.own(name) is None:
            what = "label" if label is None else "configuration"
            remarks.wrong.append(
                f"the group {name} that runs is left out, because its {what} is not known: add it to node.groups, or its nodes get the "
                "configuration of all nodes"
            )
            continue
        kept.append(KeptGroup(name, label, _again(document, running.base, common)))
    return tuple(kept)


def staying_groups(outside: Outside, running: RunningConfiguration) -> Mapping[str, Label | None]:
    """Return the groups that run and are not those of planned nodes alone, with their labels: nodes of a proposed group must have neither."""
    known = dict.fromkeys((*running.labels, *sorted(running.documents)))
    labels = {name: running.labels.get(name) for name in known if name and not running.of_nodes}
    return {name: label for name, label in labels.items() if _stays(name, label, outside)}


def _stays(name: str, label: Label | None, outside: Outside) -> bool:
    if name not in outside.left or any(node.group == name for node in outside.others):
        return True
    if label is None:
        return not outside.are_all_seen
    return any(labels.get(label[0]) == label[1] for labels in outside.labels())


def _again(document: Mapping[str, Any], base: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes a running node.yaml over the proposed configuration of all nodes; `networks.default.ipam` is that of all nodes."""
    below = merged(base, common)
    own = beyond(document, below)
    if takes_ipam(common):
        own = without(own, "networks", "default", "ipam")
    for key, nothing in _NOTHING.items():
        wanted = document.get(key, nothing)
        if wanted == below.get(key, nothing):
            own.pop(key, None)
        else:
            own[key] = rails_over(wanted, below.get(key)) if key == "rails" else wanted
    return own


def takes_ipam(common: Mapping[str, Any]) -> bool:
    """Return whether a proposal sets the addresses of the network `default` for all nodes."""
    return "default" in common.get("networks", {})
