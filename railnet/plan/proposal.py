"""The proposal: values of the chart for kinds of nodes, with what was assumed and what is to be done first. Pure."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from railnet.plan.configuration_layers import plain_rails, rails_over, without
from railnet.plan.kept_groups import KeptGroup, Outside, kept_groups, staying_groups, takes_ipam
from railnet.plan.node_facts import SeenNode, UnseenNode
from railnet.plan.node_kinds import NodeKind, Remarks, names
from railnet.plan.proposed_networks import networks, rails_of_all
from railnet.plan.rail_selectors import is_virtual, rail_order, selector, why_named, written
from railnet.plan.running_configuration import RunningConfiguration
from railnet.plan.vf_count import RunningNetwork, vf_count
from railnet.vf.pci_address import PciAddress

GROUP_LABEL = "railnet.io/node-group"
# Labels that say what a machine is: of the cloud's controller (kubernetes.io/docs/reference/labels-annotations-taints), of NVIDIA's GPU feature
# discovery (NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery).
_LABELS = (GROUP_LABEL, "node.kubernetes.io/instance-type", "nvidia.com/gpu.machine", "nvidia.com/gpu.product")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")  # of a group: values.schema.json
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
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
        kept: the groups that run and are in the values again as they are.
        assumed, wrong: what was assumed, and what an administrator should look at; one sentence each.
        commands: what must be done before the values are applied.
        values: of the chart.
    """

    groups: tuple[ProposedGroup, ...]
    kept: tuple[KeptGroup, ...]
    assumed: tuple[str, ...]
    wrong: tuple[str, ...]
    commands: tuple[str, ...]
    values: Mapping[str, Any] = field(default_factory=dict)

    def group_of(self, node: SeenNode) -> str:
        """Return the group in the values that a node will be of; empty if of none."""
        for group in self.groups:
            if any(each.name == node.name for each in group.kind.nodes):
                return group.name
        return node.group if any(group.name == node.group for group in self.kept) else ""


class _Part(NamedTuple):
    """Nodes that can have one configuration: those of a kind that run with alike ones, with one layout if the rails must be named.

    Attributes:
        own: what they have beyond the configuration of all nodes, beside rails, provision and the addresses of all nodes.
        vfs: of each rail; None if the VFs stay as they are.
        provision: of node.yaml; None if it is not known.
    """

    kind: NodeKind
    named: bool
    own: Mapping[str, Any] = {}
    vfs: int | None = None
    provision: Sequence[Any] | None = None


def propose(
    kinds: Sequence[NodeKind],
    outside: Outside,
    running: RunningConfiguration,
    vfs: int | None = None,
) -> Proposal:
    """Return the proposal. Merged over the values that run, as Helm does it, it gives each node what it shows.

    Args:
        kinds: the kinds of nodes with cards.
        outside: the other nodes. If some were not asked for, the proposal has groups alone.
        running: what runs.
        vfs: how many VFs each rail should have; None to choose.
    """
    remarks = Remarks([], [])
    is_partial = outside.unasked is not None
    rails = rails_of_all(kinds, running.network, seen_all=outside.are_all_seen)
    common = networks(kinds, rails, running, remarks) if kinds and not is_partial else {}
    parts = _all_parts(kinds, rails, running, common, remarks)
    parts = [each for part in parts for each in _with_vfs(part, vfs, rails, running, remarks)]
    grouped = is_partial or _need_groups(parts, outside, running)
    if grouped:
        groups = _groups(parts, outside, running, remarks)
    else:
        groups = tuple(_ungrouped(part, running, remarks) for part in parts)
        _say_provision(outside.others, parts, running, remarks)
        _say_conditions(outside.others, groups, running, remarks)
    for group in groups:
        _say_conditions(group.kind.nodes, (group,), running, remarks)
    if is_partial:
        _say_partial(kinds, running.network, remarks)
    own = {} if grouped or not groups else groups[0].configuration
    configuration = {**own, **common}
    proposed = {group.name: group.label for group in groups if group.label is not None}
    kept = kept_groups(proposed, outside, running, configuration, remarks) if groups else ()
    _say_unseen(outside.unseen, groups, kept, rails, remarks)
    commands = tuple(command for group in groups for command in _commands(group))
    values = _values(groups, kept, None if is_partial else configuration)
    return Proposal(groups, kept, tuple(remarks.assumed), tuple(remarks.wrong), commands, values)


def _need_groups(parts: Sequence[_Part], outside: Outside, running: RunningConfiguration) -> bool:
    """Return whether one configuration of all nodes is not right for all of them."""
    nodes = [node for part in parts for node in part.kind.nodes]
    is_named = any(part.named for part in parts) and bool(outside.others or outside.unseen)
    has_own = any(part.own for part in parts)
    staying = staying_groups(outside, running)
    labels = [label for label in staying.values() if label is not None]
    have_label = any(node.labels.get(key) == text for node in nodes for key, text in labels)
    # Nodes that left a group by an earlier plan stay a group while the other group stays: a plan of what was planned proposes the same.
    are_grouped = bool(staying) and any(node.group for node in nodes)
    return len(parts) > 1 or is_named or has_own or have_label or are_grouped


def _all_parts(
    kinds: Sequence[NodeKind],
    rails: int,
    running: RunningConfiguration,
    common: Mapping[str, Any],
    remarks: Remarks,
) -> list[_Part]:
    own = {}
    for node in (node for kind in kinds for node in kind.nodes):
        beyond_all = running.own(node.group)
        left = without(without(beyond_all or {}, "rails"), "provision")
        own[node.name] = without(left, "networks", "default", "ipam") if takes_ipam(common) else left
    _say_unknown((node for kind in kinds for node in kind.nodes), running, remarks)
    parts = []
    for kind in kinds:
        needed = rails if running.network.is_slice else kind.size
        for part in _parts(kind, needed, remarks):
            alike = _by(part.kind.nodes, lambda node: own[node.name])
            if len(alike) > 1:
                keys = sorted({key for node in part.kind.nodes for key in own[node.name]})
                remarks.assumed.append(
                    f"{names(node.name for node in part.kind.nodes)}: the configurations that run there differ in {', '.join(keys)}, so they stay groups"
                )
            parts += [part._replace(kind=part.kind.of_nodes(nodes), own=own[nodes[0].name]) for nodes in alike]
    return parts


def _by(nodes: Iterable[SeenNode], of: Callable[[SeenNode], Any]) -> list[list[SeenNode]]:
    """Return the nodes for which a function returns the same, together."""
    alike: dict[str, list[SeenNode]] = defaultdict(list)
    for node in nodes:
        alike[json.dumps(of(node), sort_keys=True, default=str)].append(node)
    return list(alike.values())


def _say_unknown(nodes: Iterable[SeenNode], running: RunningConfiguration, remarks: Remarks) -> None:
    unknown: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        if running.own(node.group) is None:
            unknown[node.group].append(node.name)
    for group, which in unknown.items():
        remarks.wrong.append(
            f"{names(which)}: what the group {group} has beside rails, provision and networks is not known, and is not in the values: add it "
            "before they are applied"
        )


def _with_vfs(
    part: _Part, asked: int | None, rails: int, running: RunningConfiguration, remarks: Remarks
) -> Iterator[_Part]:
    """Yield the part with the number of its VFs; without a number nodes keep the provision that runs, and those that differ in it are parts."""
    number = vf_count(part.kind, asked, running.network, rails, remarks)
    if number is None:
        for nodes in _by(part.kind.nodes, lambda node: _provision(node, running)):
            yield part._replace(kind=part.kind.of_nodes(nodes), provision=_provision(nodes[0], running))
        return
    conditions = selector(part.kind)
    # By `select`, not by `pf`: a node is not ready while a PF that `pf` names is missing, and the rails may name missing cards.
    addresses = [str(address) for address in part.kind.rails[part.kind.nodes[0].name]]
    select = {"pf": addresses} if conditions is None else written(conditions)
    provision = [{"select": select, "vfs": number}]
    planned = part._replace(vfs=number, provision=provision)
    _say_provision(part.kind.nodes, (planned,), running, remarks)
    yield planned


def _say_provision(
    nodes: Iterable[SeenNode], parts: Sequence[_Part], running: RunningConfiguration, remarks: Remarks
) -> None:
    """Say which nodes have a `provision` that the part's replaces."""
    for part in parts:
        replaced = [node.name for node in nodes if _provision(node, running) not in (None, [], part.provision)]
        if replaced:
            remarks.wrong.append(
                f"{names(replaced)}: `provision` becomes another than the one that runs, and --diff shows both: look whether a card loses its VFs"
            )


def _say_conditions(
    nodes: Iterable[SeenNode], groups: Sequence[ProposedGroup], running: RunningConfiguration, remarks: Remarks
) -> None:
    """Say which nodes have conditions under `rails` that others replace; `rail_order` says what a list does."""
    for group in groups:
        rails = plain_rails(group.configuration.get("rails"))
        now = {node.name: plain_rails(running.documents.get(node.group, {}).get("rails")) for node in nodes}
        which = [name for name, each in now.items() if isinstance(each, dict) and each != rails]
        if which and not isinstance(rails, list):
            remarks.wrong.append(
                f"{names(which)}: the conditions under `rails` become others than those that run, and --diff shows both: a card that they did not "
                "take so far gets a rail beside those that there are"
            )


def _provision(node: SeenNode, running: RunningConfiguration) -> Sequence[Any] | None:
    document = running.documents.get(node.group)
    return None if document is None else document.get("provision", [])


def _groups(
    parts: Sequence[_Part], outside: Outside, running: RunningConfiguration, remarks: Remarks
) -> tuple[ProposedGroup, ...]:
    taken: set[str] = set()
    groups = []
    for part in parts:
        own = {node.name for node in part.kind.nodes}
        strangers = [node for each in parts for node in each.kind.nodes if node.name not in own]
        away = [*(node.labels for node in (*strangers, *outside.others)), *(outside.unasked or {}).values()]
        # The name and the label of a group that stays are not given to nodes of another group.
        others = staying_groups(outside, running)
        now = {node.group for node in part.kind.nodes}
        away += [dict([label]) for name, label in others.items() if label is not None and name not in now]
        staying = {*others, *(node.group for node in strangers)}
        groups.append(_group(part, away, taken, staying, running, remarks))
    return tuple(groups)


def _say_partial(kinds: Sequence[NodeKind], network: RunningNetwork, remarks: Remarks) -> None:
    remarks.assumed.append(
        "not all nodes were asked, so the values have groups alone, and what all nodes have stays: ipam.rails and other networks too"
    )
    if not network.is_slice:
        return
    more = [
        node.name for kind in kinds for node in kind.nodes if network.rails is not None and kind.size > network.rails
    ]
    if more:
        remarks.wrong.append(
            f"{names(sorted(more))}: more rails than ipam.rails, which is {network.rails}: plan without --selector, or they give no addresses"
        )
    if network.rails is None:
        remarks.wrong.append(
            "ipam.rails is not set: plan without --selector first, if not all nodes have as many rails"
        )


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


def _values(
    groups: Sequence[ProposedGroup], kept: Sequence[KeptGroup], configuration: Mapping[str, Any] | None
) -> dict[str, Any]:
    common = {} if configuration is None else {"configuration": dict(configuration)}
    if not groups:
        return {"node": common}
    proposed = [(group.name, group.label, group.configuration) for group in groups]
    again = [(group.name, group.label, group.configuration) for group in kept]
    written = [
        {"name": name, "nodeSelector": dict([label]), "configuration": dict(own)}
        for name, label, own in (*proposed, *again)
        if label is not None
    ]
    return {"node": {**common, "groups": written}}


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
    part: _Part,
    away: Sequence[Mapping[str, str]],
    taken: set[str],
    staying: Collection[str],
    running: RunningConfiguration,
    remarks: Remarks,
) -> ProposedGroup:
    """Return a group with a label; `away` are the labels of the nodes that must not have it, `staying` the groups that may stay as they are."""
    kind = part.kind
    layout, configuration = _own_part(part, running, remarks)
    name, label = _running_name(kind.nodes, away, running) or ("", None)
    if label is None:
        label = _label(kind.nodes, away)
        is_name = label is not None and label[0] == GROUP_LABEL and _NAME.fullmatch(label[1]) is not None
        if label is not None and is_name and running.labels.get(label[1]) in (None, label):
            name = label[1]
        # A new name is no value of the label of a node outside: a node without a card would be in the group.
        of_others = {labels.get(GROUP_LABEL) for labels in away}
        name = name or _unused(_named(kind), {*taken, *staying, *of_others})
    taken.add(name)
    if label is None:
        label = (GROUP_LABEL, name)
    unlabelled = tuple(node.name for node in kind.nodes if node.labels.get(label[0]) != label[1])
    return ProposedGroup(name, kind, label, unlabelled, configuration, part.vfs, layout)


def _running_name(
    nodes: Sequence[SeenNode], away: Sequence[Mapping[str, str]], running: RunningConfiguration
) -> tuple[str, tuple[str, str]] | None:
    """Return the group that these nodes are of now and its label, if no other node has the label."""
    (name, *others) = {node.group for node in nodes}
    label = running.labels.get(name)
    if others or label is None:
        return None
    key, text = label
    is_ours = all(node.labels.get(key) == text for node in nodes) and not any(
        labels.get(key) == text for labels in away
    )
    return (name, label) if is_ours else None


def _ungrouped(part: _Part, running: RunningConfiguration, remarks: Remarks) -> ProposedGroup:
    layout, configuration = _own_part(part, running, remarks)
    return ProposedGroup("", part.kind, None, (), configuration, part.vfs, layout)


def _own_part(
    part: _Part, running: RunningConfiguration, remarks: Remarks
) -> tuple[tuple[PciAddress, ...] | None, Mapping[str, Any]]:
    """Return the rails in order if they are named, and the part of node.yaml that is these nodes' own.

    It always has `rails`, and `provision` if that is known: Helm leaves what the values say no more.
    """
    kind = part.kind
    conditions = None if is_virtual(kind) else selector(kind)
    layout: tuple[PciAddress, ...] | None = None
    rails: Any = "auto"
    if part.named:
        layout = rail_order(kind, remarks)
        rails = [str(address) for address in layout]
    elif conditions is not None and any(kind.others.values()):
        rails = rails_over({"select": written(conditions)}, running.base.get("rails"))
    provision = {} if part.provision is None else {"provision": part.provision}
    return layout, {"rails": rails, **provision, **part.own}


def _label(nodes: Sequence[SeenNode], away: Sequence[Mapping[str, str]]) -> tuple[str, str] | None:
    """Return a label that all these nodes have and no other node has; None if there is none."""
    for key in _LABELS:
        text = nodes[0].labels.get(key)
        is_ours = text and _LABEL_VALUE.fullmatch(text) and all(node.labels.get(key) == text for node in nodes)
        if text and is_ours and not any(labels.get(key) == text for labels in away):
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


def _say_unseen(
    unseen: Collection[UnseenNode],
    groups: Sequence[ProposedGroup],
    kept: Sequence[KeptGroup],
    rails: int,
    remarks: Remarks,
) -> None:
    places = [(group.label, f"would be that of group {group.name} by their label") for group in groups if group.label]
    places += [(group.label, f"stays that of group {group.name} by their label") for group in kept]
    by_place: dict[str, list[str]] = defaultdict(list)
    for node in sorted(unseen, key=lambda each: each.name):
        fits = (place for (key, text), place in places if node.labels.get(key) == text)
        by_place[next(fits, "would be that of all nodes")].append(node.name)
    more = f"; a node with another number of rails than {rails} gives no addresses then" if rails else ""
    for place, which in by_place.items():
        remarks.wrong.append(f"{names(which)}: not seen; the configuration {place}{more}")
