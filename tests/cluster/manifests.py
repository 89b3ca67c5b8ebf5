"""What the manifests need beside their own content on a node whose cards are simulated."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LABEL = "railnet.example.com/node"
"""The label of nodes that Railnet is for."""

NAMESPACE = "railnet"
NAMESPACE_FILE = ROOT / "daemonset/namespace.yaml"


def on_simulated_cards(objects: Iterable[dict[str, Any]], sysfs: Path) -> list[dict[str, Any]]:
    """Return objects with Railnet's DaemonSet on nodes with the label alone, and its daemon with a tree that stands for the node's cards.

    Kubernetes looks after a namespace that is being deleted again only after half of its pods' grace. So the grace is short. A replica of the
    webhook that ends answers until every API server knows that it ends; these replicas are killed.
    """
    found = list(objects)
    for one in found:
        if one["kind"] == "Deployment":
            one["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
        if one["kind"] == "DaemonSet":
            _mount(one["spec"]["template"]["spec"], sysfs)
    return found


def _mount(spec: dict[str, Any], sysfs: Path) -> None:
    (container,) = spec["containers"]
    spec["terminationGracePeriodSeconds"] = 10
    spec["nodeSelector"][LABEL] = "true"
    spec["volumes"].append({"name": "simulated-sys", "hostPath": {"path": str(sysfs), "type": "Directory"}})
    container["volumeMounts"].append({"name": "simulated-sys", "mountPath": str(sysfs)})
