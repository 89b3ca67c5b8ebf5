"""The node configurations that a values file of the chart makes: one for each group of nodes. Pure.

Not here: all other values, which Helm checks by the chart's values.schema.json.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

# The values of the chart that are no keys of node.yaml: charts/railnet/values.yaml.
OWN_VALUES = frozenset(
    {
        "image",
        "distribution",
        "node",
        "ownNode",
        "topologyLabels",
        "railsCondition",
        "webhook",
        "controllers",
        "gangs",
        "monitoring",
        "priorityClasses",
        "dnsAutoscaler",
        "uninstall",
    }
)


class NodeDocument(NamedTuple):
    """One node.yaml.

    Attributes:
        title: whose it is, for messages; empty if the file is a node.yaml itself.
        document: what it holds.
        prefixes: the paths below which the file has its keys, the first that has a key counts.
    """

    title: str
    document: Any
    prefixes: tuple[str, ...] = ("",)


def node_documents(document: Any) -> tuple[NodeDocument, ...]:
    """Return each node.yaml that a document is, or that the chart makes of it."""
    if not isinstance(document, dict) or "kind" in document or not OWN_VALUES & document.keys():
        return (NodeDocument("", document),)
    return tuple(_of_chart(document))


def _of_chart(values: Mapping[Any, Any]) -> Iterator[NodeDocument]:
    below = _dig(values, "node", "configuration")
    common = "node.configuration"
    yield NodeDocument(common, _with_features(below, values), (f"{common}.",))
    groups = _dig(values, "node").get("groups") if isinstance(_dig(values, "node"), dict) else None
    for position, group in enumerate(groups if isinstance(groups, list) else ()):
        above = _dig(group, "configuration")
        name = group.get("name") if isinstance(group, dict) else None
        if above:
            path = f"node.groups[{position}].configuration"
            title = f"group {name}" if isinstance(name, str) else path
            merged = _merged(below, above) if isinstance(below, dict) and isinstance(above, dict) else above
            yield NodeDocument(title, _with_features(merged, values), (f"{path}.", f"{common}."))


def _dig(values: Any, *keys: str) -> Any:
    """Return the value under keys of mappings; {} if it is absent or null."""
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return {} if values is None else values


def _merged(below: Mapping[Any, Any], above: Mapping[Any, Any]) -> dict[Any, Any]:
    """Merge as the chart's `railnet.merged`: mappings key by key, anything else and an `ipam` with its type as a whole."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        whole = not isinstance(old, dict) or not isinstance(value, dict) or (key == "ipam" and "type" in value)
        merged[key] = value if whole else _merged(old or {}, value)
    return merged


def _with_features(configuration: Any, values: Mapping[Any, Any]) -> Any:
    """Add the keys that features set, as the chart's `railnet.feature-configuration`."""
    if not isinstance(configuration, dict):
        return configuration
    features: dict[str, Any] = {}
    publish = {
        key: True
        for key, where in {
            "topologyLabels": ("topologyLabels", "enabled"),
            "railsCondition": ("railsCondition", "enabled"),
            "railsTaint": ("railsCondition", "taint"),
        }.items()
        if _dig(values, *where) is True
    }
    if publish:
        features["publish"] = publish
    sticky = _dig(values, "controllers", "stickyAddresses")
    if _dig(sticky, "enabled") is True:
        network = sticky.get("network", "staying")
        ipam = {"type": "sticky", "range": sticky.get("range", ""), "rails": sticky.get("rails", 1)}
        features["networks"] = {network: {"ipam": ipam}}
        # The chart also lets each namespace use the network; nothing can be wrong with that.
    return _merged(configuration, features)
