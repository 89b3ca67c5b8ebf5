"""Objects of the API server, reduced to what `railnet plan` needs of them. Pure."""

import re
from collections.abc import Mapping
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


def node_yaml(config_map: JsonObject) -> tuple[str, str] | None:
    """Return the group and the text of a ConfigMap of nodes; None if it is another one."""
    match, text = _CONFIG_MAP.fullmatch(name_of(config_map)), _dig(config_map, "data", _KEY)
    return (match[1] or "", text) if match is not None and isinstance(text, str) else None


def _dig(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
