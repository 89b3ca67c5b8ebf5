"""Nodes that offer their VFs by DRA, and which VFs pods have there."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from railnet.dra.prepared_claim_files import recorded
from railnet.kubelet.dra_driver_name import DRIVER
from railnet.vf.dra_device_name import device_name
from railnet.vf.pci_address import PciAddress
from tests.cluster.claims import claim_of, claims, slices, untainted
from tests.cluster.ground import NODE
from tests.cluster.node import PFS, VFS, ClusterNode
from tests.cluster.process import wait_until
from tests.cluster.railnet_on_node import STATE

SECONDS = 120.0
ALL = VFS * len(PFS)
"""The VFs of a node."""

WAY = "railnet.example.com/way"
"""The label of nodes that keep the device plugin, with the value `old`."""

RECORDS = STATE / "claims"
CDI_FILES = Path("/var/run/cdi")
METADATA = STATE / "device-metadata"

_VALUES = {
    "offer": "dra",
    "node": {
        "groups": [{"name": "old-way", "nodeSelector": {WAY: "old"}, "configuration": {"offer": "device-plugin"}}]
    },
}


def offer_by_dra(node: ClusterNode) -> None:
    """Have all nodes but those with the label `WAY` offer by DRA, as soon as their daemons are the newest."""
    node.railnet.values = _VALUES
    node.railnet.apply()
    node.railnet.roll_out()


def offer_by_device_plugin(node: ClusterNode) -> None:
    """Undo `offer_by_dra`, but for what only a cluster with DRA has: `forget_dra` removes that, once the slices are gone."""
    node.railnet.values = {}
    node.railnet.apply()
    node.railnet.roll_out()


def forget_dra(node: ClusterNode) -> None:
    """Remove what only a cluster with DRA has, as Helm does: while there is a DeviceClass of `rdma/ib_vf`, pods wait for claims."""
    kept = {_key(one) for one in node.railnet.objects()}
    node.kubectl.delete(*(one for one in node.railnet.objects(_VALUES) if _key(one) not in kept))


def _key(found: dict[str, Any]) -> tuple[str, str]:
    return found["kind"], found["metadata"]["name"]


@contextlib.contextmanager
def offering_by_dra(node: ClusterNode) -> Iterator[None]:
    """Have the first node offer by DRA in the block, at whose end no pod may have a VF; after it no slice is left."""
    # Else the VFs of pods that have ended come into the slices ten minutes later (docs/decisions/0082).
    if node.kubelet.has_given_devices():
        node.forget_devices()
    offer_by_dra(node)
    wait_until(lambda: untainted(NODE) == ALL and node.allocatable() == 0, SECONDS, "the VFs to be in slices")
    yield
    offer_by_device_plugin(node)
    wait_until(lambda: not slices(NODE), SECONDS, "the slices to go")
    forget_dra(node)
    node.wait_for_vfs(ALL)


def forget_claims(node: ClusterNode) -> None:
    """Have cluster and node forget all pods and claims; then every VF is free."""
    assert node.forget_pods() == []
    node.kubectl.run("delete", "resourceclaims,resourceclaimtemplates", "--all")
    wait_until(lambda: not claims(), SECONDS, "the claims to go")
    wait_until(lambda: not left_of_claims(), SECONDS, "the node to forget the claims")
    wait_until(lambda: untainted(NODE) == ALL, SECONDS, "the VFs to be in slices")


def left_of_claims() -> list[str]:
    """Name the files that the first node has for claims."""
    return [*recorded(RECORDS), *map(str, (*CDI_FILES.glob(f"*{DRIVER}*"), *METADATA.glob("*")))]


def vfs(node: ClusterNode, name: str) -> set[str]:
    """Return the PCI addresses of the VFs that a pod has, as Railnet has written them down."""
    (record,) = node.records(name)
    return {entry["vf"] for entry in record["attachments"]}


def allocated(name: str) -> set[str]:
    """Return the names of the devices that the scheduler gave to the claim that a pod owns."""
    results = claim_of(name)["status"]["allocation"]["devices"]["results"]
    return {result["device"] for result in results}


def names_of(addresses: set[str]) -> set[str]:
    """Return the names of VFs as devices."""
    return {device_name(PciAddress.parse(address)) for address in addresses}


def environment(node: ClusterNode, name: str) -> dict[str, str]:
    """Return the environment of a pod's first process."""
    return dict(word.partition("=")[::2] for word in node.execute(name, "cat", "/proc/1/environ").split("\0"))
