"""The node configurations that a values file of the chart makes: one for each group of nodes. Pure.

Not here: all other values, which Helm checks by the chart's values.schema.json.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from railnet.errors import Misconfigured
from railnet.value_readers import Reader, an_object, faults_of, list_of

# The values of the chart: charts/railnet/values.yaml, and `global`, which a chart that contains this one may set.
OWN_VALUES = frozenset(
    {
        "global",
        "image",
        "offer",
        "distribution",
        "node",
        "ownNode",
        "topologyLabels",
        "railsCondition",
        "webhook",
        "controllers",
        "gangs",
        "validate",
        "monitoring",
        "priorityClasses",
        "dnsAutoscaler",
        "uninstall",
    }
)
_COMMON = "node.configuration"
_OF_NO_NODE_YAML = OWN_VALUES - {"offer"}  # which is a key of node.yaml, too
_PUBLISH = {
    "topologyLabels": ("topologyLabels", "enabled"),
    "railsCondition": ("railsCondition", "enabled"),
    "railsTaint": ("railsCondition", "taint"),
    "kernelMessages": ("railsCondition", "kernelMessages"),
}  # the keys of `publish` that a value of the chart sets, with its path


def _as_it_is(value: Any, path: str) -> Any:  # noqa: ARG001 - a Reader
    """Return a value that another check reads."""
    return value


_ANYTHING: Reader[Any] = _as_it_is
# The keys of `node`, as charts/railnet/values.schema.json has them; a test compares both.
_OF_GROUP = dict.fromkeys(("name", "nodeSelector", "configuration"), _ANYTHING)
_OF_NODE = {
    "configuration": _ANYTHING,
    "groups": list_of(an_object(dict, _OF_GROUP)),
    **dict.fromkeys(("nodeSelector", "tolerations", "resources"), _ANYTHING),
}
_NODE: Reader[Any] = an_object(dict, _OF_NODE)


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
    if not isinstance(document, dict) or "kind" in document or not _OF_NO_NODE_YAML & document.keys():
        return (NodeDocument("", document),)
    return tuple(_of_chart(document))


def refused(document: Any) -> Iterator[tuple[str, str]]:
    """Yield the path of each key that the chart's templates/refused.yaml refuses in a node's configuration, and what to do.

    Nothing is refused in a node.yaml itself.
    """
    parts = node_documents(document)
    if not any(part.title for part in parts):
        return
    common = _dig(document, "node", "configuration")
    if isinstance(common, dict) and "offer" in common:
        yield (
            f"{_COMMON}.offer",
            f"{_COMMON} sets offer, which also needs rights and a policy: set the value offer instead",
        )
    yield from _refused_anywhere(common, _COMMON, _COMMON)
    for position, group in _groups(document):
        name = _dig(group, "name")
        place = f"node.groups, {name}" if isinstance(name, str) else f"node.groups[{position}]"
        yield from _refused_anywhere(_dig(group, "configuration"), f"node.groups[{position}].configuration", place)


def misshapen(document: Any) -> tuple[Misconfigured, ...]:
    """Return what is wrong around the configurations of a values file: a configuration below a wrong key would not be looked at.

    A null is a key that is absent, as for Helm. Nothing is said of a node.yaml itself.
    """
    if not any(part.title for part in node_documents(document)):
        return ()
    node = document.get("node")
    try:
        if node is not None:
            _NODE(_without_nulls(node), "node")
    except Misconfigured as error:
        return faults_of(error)
    return ()


def _without_nulls(value: Any) -> Any:
    return {key: each for key, each in value.items() if each is not None} if isinstance(value, dict) else value


def _refused_anywhere(configuration: Any, path: str, place: str) -> Iterator[tuple[str, str]]:
    publish = _dig(configuration, "publish")
    for key, where in _PUBLISH.items():
        if isinstance(publish, dict) and key in publish:
            instead = f"which also needs rights and a policy: set the value {'.'.join(where)} instead"
            yield f"{path}.publish.{key}", f"{place} sets publish.{key}, {instead}"
    if _dig(configuration, "admission", "priorityClass"):
        instead = "set the value webhook.priorityClass instead"
        yield f"{path}.admission.priorityClass", f"{place} sets admission.priorityClass: {instead}"


def _of_chart(values: Mapping[Any, Any]) -> Iterator[NodeDocument]:
    offer = _dig(values, "offer")
    layer = {} if offer in ({}, "device-plugin") else {"offer": offer}  # as the chart's `railnet.configuration`
    below = _dig(values, "node", "configuration")
    if isinstance(below, dict):
        below = _merged(layer, below)
    yield NodeDocument(_COMMON, _with_features(below, values), (f"{_COMMON}.", ""))
    for position, group in _groups(values):
        above = _dig(group, "configuration")
        name = group.get("name") if isinstance(group, dict) else None
        if above:
            path = f"node.groups[{position}].configuration"
            title = f"group {name}" if isinstance(name, str) else path
            merged = _merged(below, above) if isinstance(below, dict) and isinstance(above, dict) else above
            yield NodeDocument(title, _with_features(merged, values), (f"{path}.", f"{_COMMON}.", ""))


def _groups(values: Mapping[Any, Any]) -> Iterator[tuple[int, Any]]:
    groups = _dig(values, "node", "groups")
    yield from enumerate(groups if isinstance(groups, list) else ())


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
    publish = {key: True for key, where in _PUBLISH.items() if _dig(values, *where) is True}
    if publish:
        features["publish"] = publish
    sticky = _dig(values, "controllers", "stickyAddresses")
    if _dig(sticky, "enabled") is True:
        network = sticky.get("network", "staying")
        ipam = {"type": "sticky", "range": sticky.get("range", ""), "rails": sticky.get("rails", 1)}
        features["networks"] = {network: {"ipam": ipam}}
        # The chart also lets each namespace use the network; nothing can be wrong with that.
    return _merged(configuration, features)
