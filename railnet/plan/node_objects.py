"""Objects of the API server, reduced to what `railnet plan` needs of them. Pure."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from railnet.apiserver.request import JsonObject
from railnet.jobs.gpus import is_gpu
from railnet.objects.resource_amounts import capacity
from railnet.plan.node_facts import KnownNode

_PROGRAM, _GROUP = "app.kubernetes.io/name", "railnet.io/node-group"
_CONFIG_MAP = re.compile(
    r"railnet-node(?:-([a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?))?"
)  # charts/railnet, templates/node/configmap.yaml
_KEY = "node.yaml"
_NO_NAME = "unnamed"
_SYSTEM = "kubernetes.io/os"  # each pod of Railnet selects it


def identity(node: JsonObject, group: str) -> KnownNode:
    """Return what a Node says of itself; GPUs are counted by its capacity, also those that are broken now."""
    labels = _dig(node, "metadata", "labels")
    amounts = _amounts(node)
    return KnownNode(
        name_of(node),
        {key: text for key, text in labels.items() if isinstance(text, str)} if isinstance(labels, dict) else {},
        None
        if amounts is None
        else max((amount for resource, amount in amounts.items() if is_gpu(resource)), default=0),
        group,
    )


def _amounts(node: JsonObject) -> Mapping[str, int] | None:
    """Return the node's capacity; None if the object has none, as of a bundle that left it out."""
    if not isinstance(_dig(node, "status", "capacity"), dict):
        return None
    return capacity(node)


def name_of(document: JsonObject) -> str:
    """Return the name of an object."""
    name = _dig(document, "metadata", "name")
    return name if isinstance(name, str) else _NO_NAME


def node_of_pod(pod: JsonObject) -> str:
    """Return the name of the node of a pod; empty while it has none."""
    name = _dig(pod, "spec", "nodeName")
    return name if isinstance(name, str) else ""


def is_of_daemon(pod: JsonObject) -> bool:
    """Return whether a pod is of a DaemonSet of the chart, and stays."""
    labels = _dig(pod, "metadata", "labels")
    return (
        isinstance(labels, dict)
        and labels.get(_PROGRAM) == "railnet"
        and not _dig(pod, "metadata", "deletionTimestamp")
    )


def group_of(pod: JsonObject | None) -> str:
    """Return the group of nodes of a daemon's pod; empty if it is of none."""
    group = _dig(pod, "metadata", "labels", _GROUP)
    return group if isinstance(group, str) else ""


def labels_of_groups(pods: Collection[JsonObject]) -> dict[str, tuple[str, str] | None]:
    """Return the label of each group of nodes by the node selectors of its pods, in the order in which groups take nodes.

    A pod's selector also has the labels of the value `node.nodeSelector`, which pods of all groups have. None is a label that cannot be told.
    """
    selectors: dict[str, dict[str, str]] = {}
    order: dict[str, int] = {}
    for pod in pods:
        selector = _dig(pod, "spec", "nodeSelector")
        group = group_of(pod)
        selectors[group] = selector if isinstance(selector, dict) else {}
        order[group] = len(_refused_labels(pod))
    of_all = set.intersection(*(set(each.items()) for each in selectors.values())) if len(selectors) > 1 else set()
    labels: dict[str, tuple[str, str] | None] = {}
    for group in sorted(filter(None, selectors), key=lambda each: (order[each], each)):
        left = [pair for pair in selectors[group].items() if pair not in of_all and pair[0] != _SYSTEM]
        left = [(_GROUP, group)] if (_GROUP, group) in left else left
        labels[group] = left[0] if len(left) == 1 else None
    return labels


def _refused_labels(pod: JsonObject) -> list[Any]:
    """Return the conditions by which a group's pods leave the nodes of the groups before it (charts/railnet, daemonset.yaml)."""
    terms = _dig(
        pod,
        "spec",
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
    )
    conditions = _dig(terms[0], "matchExpressions") if isinstance(terms, list) and terms else None
    return conditions if isinstance(conditions, list) else []


def node_yaml(config_map: JsonObject) -> tuple[str, str] | None:
    """Return the group and the text of a ConfigMap of nodes; None if it is another one."""
    match, text = _CONFIG_MAP.fullmatch(name_of(config_map)), _dig(config_map, "data", _KEY)
    return (match[1] or "", text) if match is not None and isinstance(text, str) else None


def _dig(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
