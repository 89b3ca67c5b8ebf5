"""What becomes of a proposal: Helm merges it over the values before, and the chart makes a node.yaml of each group."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml

from railnet.plan.cluster_reading import Reading
from railnet.plan.differences import differences
from railnet.plan.node_facts import SeenNode, UnseenNode
from railnet.plan.planning import plan
from railnet.plan.proposal import Proposal
from railnet.plan.running_configuration import RunningConfiguration, running

Values = dict[str, Any]


def helm_merged(before: Any, after: Any) -> Any:
    """Return values over other values as `helm upgrade -f before -f after`: maps key by key, all else as a whole."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    return {**before, **{key: helm_merged(before.get(key), value) for key, value in after.items()}}


def documents_of(values: Values) -> dict[str, Values]:
    """Return node.yaml by the name of the group, as the chart makes it; that of the other nodes has an empty name."""
    node = values.get("node", {})
    common = node.get("configuration", {})
    return {group["name"]: _over(common, group["configuration"]) for group in node.get("groups", [])} | {"": common}


def _over(below: Values, above: Values) -> Values:
    whole: Values = helm_merged(below, above)
    for name, network in above.get("networks", {}).items():
        if "ipam" in network:
            whole["networks"][name] = {**whole["networks"][name], "ipam": network["ipam"]}
    return whole


def group_of(labels: Mapping[str, str], values: Values) -> str:
    """Return the group that takes a node: the first whose label it has."""
    for group in values.get("node", {}).get("groups", []):
        if all(labels.get(key) == text for key, text in group["nodeSelector"].items()):
            return str(group["name"])
    return ""


class Applied:
    """A plan of a cluster that runs some values, and each node's node.yaml before and after it is applied."""

    def __init__(self, before: str | Values, *nodes: SeenNode, **planned: Any) -> None:
        self.values: Values = yaml.safe_load(before) if isinstance(before, str) else before
        self.nodes = tuple(replace(node, group=group_of(node.labels, self.values)) for node in nodes)
        self.unseen: tuple[UnseenNode, ...] = tuple(planned.get("unseen", ()))
        unasked: Mapping[str, Mapping[str, str]] | None = planned.get("unasked")
        self.running = self._running()
        self.proposal: Proposal = plan(Reading(self.nodes, self.unseen, self.running, unasked), planned.get("vfs"))
        self.after: Values = helm_merged(self.values, self.proposal.values)
        labels = {node.name: dict(node.labels) for node in (*self.nodes, *self.unseen)} | {
            name: dict(each) for name, each in (unasked or {}).items()
        }
        now, then = documents_of(self.values), documents_of(self.after)
        self.now = {name: now[group_of(each, self.values)] for name, each in labels.items()}
        for command in self.proposal.commands:
            *names, label = command.removeprefix("kubectl label node ").removesuffix(" --overwrite").split()
            key, _, text = label.partition("=")
            for name in names:
                labels[name][key] = text
        self.labels = labels
        self.then = {name: then[group_of(each, self.after)] for name, each in labels.items()}

    def _running(self) -> RunningConfiguration:
        texts = {name: yaml.safe_dump(document) for name, document in documents_of(self.values).items()}
        groups = self.values.get("node", {}).get("groups", [])
        labels = {group["name"]: next(iter(group["nodeSelector"].items())) for group in groups}
        return running(texts, (), labels)

    def changed(self, node: str) -> set[str]:
        """Return the keys of a node's node.yaml that --diff shows."""
        return {each.key for each in differences(self.proposal, self.nodes, self.running) if node in each.nodes}

    def told(self, *words: str) -> bool:
        """Return whether "What to look at" has a sentence with all these words."""
        return any(all(word in sentence for word in words) for sentence in self.proposal.wrong)
