"""The overlays of this node: what a cluster's owner would write beside daemonset/ and overlays/uninstall/."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.ground import RUN

ROOT = Path(__file__).resolve().parents[2]
LABEL = "railnet.example.com/node"
"""The label of nodes that Railnet is for."""

NAMESPACE = "railnet"


class Overlay:
    """A folder for `kubectl apply -k`, below RUN."""

    def __init__(self, base: str, sysfs: Path, *patches: Mapping[str, Any], more: Sequence[str] = ()) -> None:
        """Build on a folder of the checkout's, and on more of them, with patches.

        Args:
            base: the folder, which gives the overlay its name.
            sysfs: the tree that the daemon sees of the cards.
            patches: patches of objects.
            more: other folders.
        """
        self.folder = RUN / "manifests" / Path(base).name
        self._bases, self._sysfs = (base, *more), sysfs
        self._patches = {f"patch-{number}.yaml": patch for number, patch in enumerate(patches)}

    def write(self, configuration: Mapping[str, Any]) -> None:
        """Write it, with this node configuration; kustomize refuses a base that is not named by a relative path."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, content in (
            ("kustomization.yaml", self._kustomization()),
            ("daemonset.yaml", self._patch()),
            ("node.yaml", configuration),
            *self._patches.items(),
        ):
            (self.folder / name).write_text(json.dumps(content, indent=2))

    def _kustomization(self) -> dict[str, Any]:
        node = {"name": "railnet-node", "namespace": NAMESPACE, "behavior": "replace", "files": ["node.yaml"]}
        return {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "bases": [os.path.relpath(ROOT / base, self.folder) for base in self._bases],
            "patchesStrategicMerge": ["daemonset.yaml", *self._patches],
            "configMapGenerator": [node],
        }

    def _patch(self) -> dict[str, Any]:
        tree = {"name": "simulated-sys", "mountPath": str(self._sysfs)}
        template = {
            "nodeSelector": {LABEL: "true"},
            # Kubernetes looks after a namespace that is being deleted again only after half of its pods' grace.
            "terminationGracePeriodSeconds": 10,
            "containers": [{"name": "railnet", "volumeMounts": [tree]}],
            "volumes": [{"name": tree["name"], "hostPath": {"path": tree["mountPath"], "type": "Directory"}}],
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "railnet", "namespace": NAMESPACE},
            "spec": {"template": {"spec": template}},
        }
