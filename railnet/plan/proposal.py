"""The proposal: values of the chart for kinds of nodes, with what was assumed and what is to be done first. Pure."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from railnet.plan.node_facts import SeenNode, UnseenNode
from railnet.plan.node_kinds import NodeKind, Remarks, names
from railnet.plan.rail_conditions import is_virtual, rail_order, selector, why_named, written
from railnet.plan.vf_count import RunningNetwork, vf_count
from railnet.vf.pci_address import PciAddress

GROUP_LABEL = "railnet.io/node-group"
# Labels that say what a machine is: of the cloud's controller (kubernetes.io/docs/reference/labels-annotations-taints), of NVIDIA's GPU feature
# discovery (NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery).
_LABELS = (GROUP_LABEL, "node.kubernetes.io/instance-type", "nvidia.com/gpu.machine", "nvidia.com/gpu.product")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")  # of a group: values.schema.json
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PARTITION, _DEFAULT_PARTITION = 0x7FFF, 0x7FFF  # InfiniBand Architecture Specification volume 1, 10.9
_FULL_MEMBER = 0x8000
_AT_ONCE = 20  # nodes in a command


@dataclass(frozen=True, slots=True)
class ProposedGroup:
    """A group of nodes.

    Attributes:
        name: empty if all nodes have one configuration.
        label: the label of its nodes; None if they need none.
        unlabelled: its nodes that do not have the label yet.
        configuration: its own part of node.yaml.
        vfs: of each rail; None if the VFs stay as they are.
        layout: the rails in order if they are named; None if they are selected.
    """

    name: str
    kind: NodeKind
    label: tuple[str, str] | None
    unlabelled: tuple[str, ...]
    configuration: Mapping[str, Any]
    vfs: int | None
    layout: tuple[PciAddress, ...] | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """What is proposed.

    Attributes:
        values: of the chart.
        assumed, wrong: what was assumed, and what an administrator should look at; one sentence each.
        commands: what must be done before the values are applied.
    """

    groups: tuple[ProposedGroup, ...]
    common: Mapping[str, Any]
    assumed: tuple[str, ...]
    wrong: tuple[str, ...]
    commands: tuple[str, ...]
    values: Mapping[str, Any] = field(default_factory=dict)


class _Part(NamedTuple):
    """Nodes that can have one configuration: a kind, or its nodes with one layout if the rails must be named."""

    kind: NodeKind
    named: bool


def propose(
    kinds: Sequence[NodeKind],
    others: Collection[SeenNode],
    unseen: Collection[UnseenNode],
    network: RunningNetwork,
    vfs: int | None = None,
) -> Proposal:
    """Return the proposal.

    Args:
        kinds: the kinds of nodes with cards.
        others: nodes without a card.
        unseen: nodes that reported nothing.
        network: the network `default` of what runs.
        vfs: how many VFs each rail should have; None to choose.
    """
    remarks = Remarks([], [])
    rails = max((kind.size for kind in kinds), default=0)
    parts = [part for kind in kinds for part in _parts(kind, rails if network.is_slice else kind.size, remarks)]
    grouped = len(parts) > 1 or (any(part.named for part in parts) and bool(others or unseen))
    taken: set[str] = set()
    groups = []
    for part in parts:
        number = vf_count(part.kind, vfs, network, rails, remarks)
        own = {node.name for node in part.kind.nodes}
        strangers = [node for each in parts for node in each.kind.nodes if node.name not in own]
        groups.append(
            _group(part, number, [*strangers, *others], taken, remarks)
            if grouped
            else _ungrouped(part, number, remarks)
        )
    common = _networks(kinds, rails, network, remarks) if kinds else {}
    _say_unseen(unseen, groups, rails, remarks)
    commands = tuple(command for group in groups for command in _commands(group))
    values = _values(groups, common, grouped=grouped)
    return Proposal(tuple(groups), common, tuple(remarks.assumed), tuple(remarks.wrong), commands, values)


def _commands(group: ProposedGroup) -> Iterator[str]:
    """Yield the commands that give nodes the label of their group, some nodes in each."""
    if group.label is None:
        return
    key, text = group.label
    have_another = {node.name for node in group.kind.nodes if key in node.labels}
    for at in range(0, len(group.unlabelled), _AT_ONCE):
        chunk = group.unlabelled[at : at + _AT_ONCE]
        overwrite = " --overwrite" if have_another & set(chunk) else ""
        yield f"kubectl label node {' '.join(chunk)} {key}={text}{overwrite}"


def _values(groups: Sequence[ProposedGroup], common: Mapping[str, Any], *, grouped: bool) -> dict[str, Any]:
    if not grouped:
        own = groups[0].configuration if groups else {}
        return {"node": {"configuration": {**own, **common}}}
    listed = [
        {"name": group.name, "nodeSelector": dict([group.label]), "configuration": dict(group.configuration)}
        for group in groups
        if group.label is not None
    ]
    return {"node": {"configuration": dict(common), "groups": listed}}


def _parts(kind: NodeKind, rails: int, remarks: Remarks) -> Iterator[_Part]:
    """Yield the kind, or each layout of it if addresses must name its rails: the list of one node is wrong for another."""
    why = why_named(kind, rails)
    if why is None and (is_virtual(kind) or selector(kind) is not None):
        yield _Part(kind, named=False)
        return
    remarks.assumed.append(
        f"{names(node.name for node in kind.nodes)}: the rails are named by PCI addresses, because "
        f"{why or 'no condition of `select` tells them from the other cards'}"
    )
    if len(kind.layouts) > 1:
        remarks.assumed.append(
            f"{names(node.name for node in kind.nodes)}: {len(kind.layouts)} sets of addresses for alike cards, so each set is a group"
        )
    for layout in kind.layouts:
        yield _Part(kind.of_layout(layout), named=True)


def _group(
    part: _Part, vfs: int | None, strangers: Sequence[SeenNode], taken: set[str], remarks: Remarks
) -> ProposedGroup:
    """Return a group with a label; `strangers` are the nodes that must not have the label."""
    kind = part.kind
    layout, configuration = _own_part(part, vfs, remarks)
    label = _label(kind.nodes, strangers)
    is_name = label is not None and label[0] == GROUP_LABEL and _NAME.fullmatch(label[1]) is not None
    # A new name is no value of the label of a node outside: a node without a card would be in the group.
    of_strangers = {node.labels.get(GROUP_LABEL) for node in strangers}
    name = label[1] if label is not None and is_name else _unused(_named(kind), taken | of_strangers)
    taken.add(name)
    if label is None:
        label = (GROUP_LABEL, name)
    unlabelled = tuple(node.name for node in kind.nodes if node.labels.get(label[0]) != label[1])
    return ProposedGroup(name, kind, label, unlabelled, configuration, vfs, layout)


def _ungrouped(part: _Part, vfs: int | None, remarks: Remarks) -> ProposedGroup:
    layout, configuration = _own_part(part, vfs, remarks)
    return ProposedGroup("", part.kind, None, (), configuration, vfs, layout)


def _own_part(
    part: _Part, vfs: int | None, remarks: Remarks
) -> tuple[tuple[PciAddress, ...] | None, Mapping[str, Any]]:
    """Return the rails in order if they are named, and the part of node.yaml that is these nodes' own."""
    kind = part.kind
    conditions = None if is_virtual(kind) else selector(kind)
    if part.named:
        layout = rail_order(kind, remarks)
        addresses = [str(address) for address in layout]
        # By `select`, not by `pf`: a node is not ready while a PF that `pf` names is missing, and the rails may name missing cards.
        select = {"pf": addresses} if conditions is None else written(conditions)
        provision = {} if vfs is None else {"provision": [{"select": select, "vfs": vfs}]}
        return layout, {"rails": addresses, **provision}
    configuration: dict[str, Any] = {}
    if conditions is not None and any(kind.others.values()):
        configuration["rails"] = {"select": written(conditions)}
    if conditions is not None and vfs is not None:
        configuration["provision"] = [{"select": written(conditions), "vfs": vfs}]
    return None, configuration


def _networks(kinds: Sequence[NodeKind], rails: int, network: RunningNetwork, remarks: Remarks) -> dict[str, Any]:
    """Return the part of node.yaml that all nodes have: the number of rails, and a network for each partition."""
    networks: dict[str, Any] = {}
    if network.is_slice:
        # Its type and range stand beside it: an `ipam` without its type is refused, and one with it replaces the whole.
        networks["default"] = {"ipam": {"type": "slice", "range": str(network.range), "rails": rails}}
    else:
        remarks.assumed.append("the network default gives no addresses by rail, so ipam.rails is left out")
    tables = [
        (node.name, {key & _PARTITION for key in card.pkeys if key & _FULL_MEMBER})
        for kind in kinds
        for node, card in kind.cards()
        if card.pkeys and card.active
    ]
    known = set().union(*(keys for _, keys in tables)) - {_DEFAULT_PARTITION} if tables else set()
    for key in sorted(known):
        without = sorted({name for name, keys in tables if key not in keys})
        if without:
            remarks.wrong.append(
                f"partition 0x{key | _FULL_MEMBER:04x} is not on every rail ({names(without)} lack it), so no network was proposed for it"
            )
        else:
            networks[f"partition-{key:04x}"] = {"pkey": f"0x{key | _FULL_MEMBER:04x}", "ipam": {"type": "none"}}
    if len(networks) > network.is_slice:
        remarks.assumed.append(
            "each partition beside the default one is a network of its own without addresses; no namespace may use it until `limits` names it"
        )
    return {"networks": networks} if networks else {}


def _label(nodes: Sequence[SeenNode], strangers: Iterable[SeenNode]) -> tuple[str, str] | None:
    """Return a label that all these nodes have and no other node has; None if there is none."""
    others = list(strangers)
    for key in _LABELS:
        text = nodes[0].labels.get(key)
        is_ours = text and _LABEL_VALUE.fullmatch(text) and all(node.labels.get(key) == text for node in nodes)
        if text and is_ours and not any(node.labels.get(key) == text for node in others):
            return key, text
    return None


def _named(kind: NodeKind) -> str:
    rate = f"{kind.rate}g" if kind.rate else kind.model.partition(":")[2] or "rails"
    return f"{kind.size}x{rate}".replace(".", "-")


def _unused(name: str, taken: Collection[str | None]) -> str:
    chosen, number = name, 1
    while chosen in taken:
        number += 1
        chosen = f"{name}-{number}"
    return chosen


def _say_unseen(unseen: Collection[UnseenNode], groups: Sequence[ProposedGroup], rails: int, remarks: Remarks) -> None:
    by_place: dict[str, list[str]] = defaultdict(list)
    for node in sorted(unseen, key=lambda each: each.name):
        labels = node.labels
        group = next((each for each in groups if each.label and labels.get(each.label[0]) == each.label[1]), None)
        place = "the configuration of all nodes" if group is None else f"that of group {group.name} by their label"
        by_place[place].append(node.name)
    more = f"; a node with another number of rails than {rails} gives no addresses then" if rails else ""
    for place, which in by_place.items():
        remarks.wrong.append(f"{names(which)}: not seen; the configuration would be {place}{more}")
