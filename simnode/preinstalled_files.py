"""Files that a node has before Railnet is installed: flannel's lease and configuration, the CNI plugins, the node configuration.

This module has their content only; `linux.namespaces` knows which paths are private to the node.
"""

import json
import shutil
from collections.abc import Iterable
from ipaddress import IPv4Interface
from pathlib import Path
from typing import NamedTuple

from simnode.hardware.pf_properties import SimulatedPf
from simnode.kubernetes.cri import SOCKET

CONFIGURATION = Path("/etc/railnet/node.yaml")
_SUBNET = Path("/run/flannel/subnet.env")
_NETWORKS = Path("/etc/cni/net.d")
_PLUGINS = Path("/opt/cni/bin")
# Of the default range, a node of a cluster with 256 subnets has /27 for each of eight rails; of the large one it has /23.
_ADDRESSES_BY_DEFAULT, _LARGE_RANGE = 30, "10.64.0.0/12"


class FlannelLease(NamedTuple):
    """The subnet that flanneld leased to the node, as written to subnet.env; the defaults are those of the vxlan backend."""

    subnet: IPv4Interface = IPv4Interface("10.244.3.1/24")
    mtu: int = 1450

    @property
    def env(self) -> str:
        """The content of subnet.env."""
        return (
            f"FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET={self.subnet}\n"
            f"FLANNEL_MTU={self.mtu}\nFLANNEL_IPMASQ=true\n"
        )


# The configuration that kube-flannel's manifest installs, byte for byte.
_FLANNEL_CONFLIST = """\
{
  "name": "cbr0",
  "cniVersion": "0.3.1",
  "plugins": [
    {
      "type": "flannel",
      "delegate": {
        "hairpinMode": true,
        "isDefaultGateway": true
      }
    },
    {
      "type": "portmap",
      "capabilities": {
        "portMappings": true
      }
    }
  ]
}
"""
NETWORK: str = json.loads(_FLANNEL_CONFLIST)["name"]


def write(
    plugins: Path,
    pfs: Iterable[SimulatedPf],
    vfs: int,
    lease: FlannelLease,
    sysfs: Path = Path("/sys"),
    cri: Path = SOCKET,
) -> None:
    """Write all these files; copy the real CNI plugins from the folder `plugins`.

    `sysfs` is the root of the simulated tree, `cri` the container runtime's socket.
    """
    for plugin in plugins.iterdir():
        shutil.copy2(plugin, _PLUGINS / plugin.name)
    for path, text in (
        (_SUBNET, lease.env),
        (_NETWORKS / "10-flannel.conflist", _FLANNEL_CONFLIST),
        (CONFIGURATION, node_configuration(pfs, vfs, sysfs, cri)),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def node_configuration(pfs: Iterable[SimulatedPf], vfs: int, sysfs: Path = Path("/sys"), cri: Path = SOCKET) -> str:
    """Return the node configuration that provisions `vfs` VFs on each PF; JSON is YAML, too."""
    document: dict[str, object] = {
        "apiVersion": "railnet.io/v1alpha1",
        "kind": "NodeConfiguration",
        "host": {"root": "/", "sysfs": str(sysfs), "cri": str(cri)},
        "provision": [{"pf": str(pf.address), "vfs": vfs, "guid": "derived"} for pf in pfs],
    }
    if vfs > _ADDRESSES_BY_DEFAULT:
        document["networks"] = {"default": {"ipam": {"type": "slice", "range": _LARGE_RANGE}}}
    return json.dumps(document, indent=2) + "\n"
