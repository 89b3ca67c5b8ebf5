"""What a bundle takes of each object and file: tables of the keys that are taken. A key that is in no table is never taken. Pure.

So a secret stays where it is, whatever an object has: environments, annotations, commands, tokens in a plugin's configuration.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from railnet.fabric.port_counter_thresholds import PortThresholds
from railnet.vf.record import Record

LEFT_OUT = "(left out)"
_USER_OF_URL = re.compile(r"(?<=://)\S*@")  # user and password, up to the last @ of the word: a password may have one
_LONGEST = 4096  # characters of a value

# A tree of keys: a mapping has the keys that are taken, of a list each entry has them; None takes a plain value.
Tree = Mapping[str, "Tree | None"]
_CONDITION: Tree = dict.fromkeys(("type", "status", "reason", "message", "lastTransitionTime"))
_WHEN: Tree = dict.fromkeys(("startedAt", "finishedAt", "reason", "exitCode", "signal"))
_CONTAINER_STATE: Tree = {"running": _WHEN, "waiting": _WHEN, "terminated": _WHEN}
_CONTAINER_STATUS: Tree = {
    **dict.fromkeys(("name", "image", "imageID", "ready", "started", "restartCount")),
    "state": _CONTAINER_STATE,
    "lastState": _CONTAINER_STATE,
}
_METADATA: Tree = dict.fromkeys(("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"))
NODE: Tree = {
    "metadata": _METADATA,
    "spec": {"unschedulable": None, "taints": dict.fromkeys(("key", "effect", "timeAdded"))},
    "status": {
        "conditions": _CONDITION,
        "nodeInfo": dict.fromkeys(
            (
                "architecture",
                "containerRuntimeVersion",
                "kernelVersion",
                "kubeProxyVersion",
                "kubeletVersion",
                "operatingSystem",
                "osImage",
            )
        ),
    },
}
POD: Tree = {
    "metadata": _METADATA,
    "spec": {"nodeName": None, "hostNetwork": None, "containers": dict.fromkeys(("name", "image"))},
    "status": {
        "phase": None,
        "reason": None,
        "conditions": _CONDITION,
        "containerStatuses": _CONTAINER_STATUS,
        "initContainerStatuses": _CONTAINER_STATUS,
    },
}
EVENT: Tree = {
    **dict.fromkeys(("type", "reason", "message", "count", "firstTimestamp", "lastTimestamp", "eventTime")),
    "involvedObject": dict.fromkeys(("kind", "namespace", "name", "uid")),
    "source": dict.fromkeys(("component", "host")),
    "reportingComponent": None,
}
_LABELS = ("railnet.io/", "kubernetes.io/", "node.kubernetes.io/", "topology.kubernetes.io/")  # of a node
# Keys of CNI configurations, of their IPAM plugins and of node.yaml that say how a network is made. Sources: the pages of the plugins on
# cni.dev, flannel's meta plugin, whereabouts' README, docs/configuration.md.
_CONFIGURATION_KEYS = frozenset(
    [
        "cniVersion",
        "cniVersions",
        "name",
        "type",
        "plugins",
        "disableCheck",
        "disableGC",
        "capabilities",
        "delegate",
        "delegates",
        "ipam",
        "bridge",
        "mtu",
        "isGateway",
        "isDefaultGateway",
        "forceAddress",
        "hairpinMode",
        "ipMasq",
        "promiscMode",
        "vlan",
        "vlanTrunk",
        "preserveDefaultVlan",
        "macspoofchk",
        "master",
        "mode",
        "linkInContainer",
        "subnet",
        "subnets",
        "ranges",
        "rangeStart",
        "rangeEnd",
        "range",
        "range_start",
        "range_end",
        "exclude",
        "gateway",
        "routes",
        "dst",
        "gw",
        "addresses",
        "address",
        "dataDir",
        "subnetFile",
        "portMappings",
        "snat",
        "externalSetMarkChain",
        "conditionsV4",
        "conditionsV6",
        "ingressRate",
        "egressRate",
        "sysctl",
        "tuning",
        "log_level",
        "datastore",
        "network_name",
        "apiVersion",
        "kind",
        "host",
        "sysfs",
        "kubelet",
        "devicePlugins",
        "flannel",
        "root",
        "cri",
        "nri",
        "cniConf",
        "cniBin",
        "primary",
        "rails",
        "pools",
        "resource",
        "select",
        "linkType",
        "vendor",
        "device",
        "pfDevice",
        "driver",
        "pf",
        "pciAddress",
        "function",
        "numaNode",
        "rdma",
        "management",
        "ncclRails",
        "offer",
        "netns",
        "provision",
        "vfs",
        "guid",
        "wait",
        "pkey",
        "routing",
        "static",
        "networks",
        "limits",
        "timeouts",
        "add",
        "daemon",
        "publish",
        "networkStatus",
        "events",
        "topologyLabels",
        "railsCondition",
        "railsTaint",
        "kernelMessages",
        "kernelLog",
        "portThresholds",
        *PortThresholds._fields,
        "admission",
        "priorityClass",
        "environment",
        "memlock",
        "portMappings",
        "bandwidth",
        "ips",
        "mac",
        "infinibandGUID",
        "deviceID",
        "io.kubernetes.cri.pod-annotations",
    ]
)
_SWITCHES = frozenset(
    {"environment"}
)  # keys of node.yaml that a plugin may have for variables: only a boolean is taken
_WITH_NAMES = frozenset({"networks", "limits"})  # keys of node.yaml whose mappings have names for keys


def taken(document: Any, tree: Tree) -> dict[str, Any]:
    """Return what a tree of keys takes of an object; what has another form is not taken."""
    if not isinstance(document, dict):
        return {}
    pairs = ((key, _of_key(document[key], below)) for key, below in tree.items() if key in document)
    return {key: value for key, value in pairs if value is not None}


def node(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is taken of a Node: also its resources, and the labels of Railnet and of Kubernetes."""
    result = taken(document, NODE)
    for part, key in (("metadata", "labels"), ("status", "allocatable"), ("status", "capacity")):
        around = document.get(part)
        values = around.get(key) if isinstance(around, dict) else None
        if isinstance(values, dict):
            wanted = (name for name in values if key != "labels" or str(name).startswith(_LABELS))
            result.setdefault(part, {})[key] = {name: _plain(values[name]) for name in wanted}
    return result


def _of_key(value: Any, below: "Tree | None") -> Any:
    if below is None:
        return _plain(value)
    if isinstance(value, list):
        return [taken(entry, below) for entry in value] or None
    return taken(value, below) or None


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_LONGEST]
    return value if isinstance(value, bool | int | float) else None


def configuration(document: Any) -> Any:
    """Return a CNI configuration or a node.yaml: keys of the table with their values, other keys with `(left out)` in place of their values.

    User and password of a URL are left out, too.
    """
    return _configured(document, named=False)


def _configured(value: Any, *, named: bool) -> Any:
    if isinstance(value, dict):
        return {
            str(key)[:_LONGEST]: _configured(entry, named=key in _WITH_NAMES)
            if named or (key in _CONFIGURATION_KEYS and (key not in _SWITCHES or isinstance(entry, bool)))
            else LEFT_OUT
            for key, entry in value.items()
        }
    if isinstance(value, list | tuple):
        return [_configured(entry, named=False) for entry in value]
    return _USER_OF_URL.sub(f"{LEFT_OUT}@", _plain(value)) if isinstance(value, str) else _plain(value)


def record(sandbox: Record) -> dict[str, Any]:
    """Return what is taken of a journal's record: without the configurations of the primary network and of an IPAM plugin."""
    return {
        "container_id": sandbox.container_id,
        "ifname": sandbox.ifname,
        "pod": sandbox.pod._asdict(),
        "netns": sandbox.netns._asdict(),
        "stage": sandbox.stage,
        "network": sandbox.network,
        "boot": sandbox.boot,
        "rebuilt": sandbox.rebuilt,
        "attachments": [
            {
                "ifname": attachment.ifname,
                "vf": str(attachment.vf),
                "rail": attachment.rail,
                "guid": None if attachment.guid is None else str(attachment.guid),
                "rdma": attachment.rdma,
                "mtu": attachment.mtu,
                "addresses": [str(address) for address in attachment.addresses],
                "host_ifname": attachment.host_ifname,
            }
            for attachment in sandbox.attachments
        ],
    }


def devices(entries: Collection[tuple[str, str, set[str], Mapping[str, object]]]) -> list[dict[str, Any]]:
    """Return what is taken of kubelet's checkpoint: which container has which devices. Its `AllocResp` has environments, and stays."""
    return [
        {
            "pod_uid": uid,
            "container": _plain(entry.get("ContainerName")),
            "resource": resource,
            "devices": sorted(ids),
        }
        for uid, resource, ids, entry in entries
    ]
