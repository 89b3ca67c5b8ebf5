"""What a node's programs stand on, inside `simnode exec --cgroups`: addresses, links, folders, devices, kernel settings."""

import os
import stat
import string
import subprocess
from pathlib import Path

from simnode.linux import empty_folders, libc, namespaces

RUN = Path("/run/cluster")
NODES = tuple(f"node-{letter}" for letter in string.ascii_lowercase)
"""The names that nodes can have; the first one is also the machine of the control plane."""

NODE = NODES[0]
POD_SUBNET = "10.244.0.0/16"  # of all nodes, as kube-flannel's manifest has it; each node gets a /24
SERVICES = "10.96.0.0/16"
DNS_ADDRESS = "10.96.0.10"  # as kubeadm chooses it in this range
UPLINK = "uplink"
"""The first node's link to the other nodes: a bridge, whose ports are theirs."""

KUBELET_FOLDER = Path("/var/lib/kubelet")
_PREFIX = 24
_ROUTER = "10.4.52.1"  # behind it there is nothing
_FOLDERS = (Path("/var/log/pods"), Path("/var/log/containers"), Path("/usr/libexec/kubernetes"))
# include/uapi/linux/major.h, drivers/char/mem.c: kubelet's watcher for processes killed for memory reads it
_KMSG = (1, 11)


def address_of(node: str) -> str:
    """Return a node's address on the network of the nodes; kubelet refuses a loopback address, wherever it is."""
    return f"10.4.52.{5 + NODES.index(node)}"


NODE_ADDRESS = address_of(NODE)


def prepare(node: str, link: str) -> None:
    """Make all of it; nothing is undone, since it ends with the namespaces. The link is there already.

    A default route, which no packet needs, has two uses: kube-proxy's rules change the destination of the node's own packets only after the
    kernel has found a route to it, and flanneld asks which link is the node's own.
    """
    if not namespaces.inside() or not Path("/sys/fs/cgroup").is_dir():
        raise RuntimeError("a node writes to /etc, /run and /var: start this by scripts/with-cluster")
    for folder in _FOLDERS:
        empty_folders.mount_empty(folder)
    # kubelet mounts volumes in a mount namespace of its own (tests/cluster/kubelet.py), and containerd must see them.
    libc.mount("", str(KUBELET_FOLDER), flags=libc.MS_SHARED)
    os.mknod("/dev/kmsg", stat.S_IFCHR | 0o400, os.makedev(*_KMSG))
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    _ip("address", "add", f"{address_of(node)}/{_PREFIX}", "dev", link)
    _ip("link", "set", link, "up")
    _ip("route", "add", "default", "via", _ROUTER)


def make_uplink() -> None:
    """Make the bridge of the first node."""
    _ip("link", "add", UPLINK, "type", "bridge")


def join(node: str, process: int, link: str) -> None:
    """Make a link in the network namespace of a process, and plug it into the bridge."""
    _ip("link", "add", node, "type", "veth", "peer", "name", link, "netns", str(process))
    _ip("link", "set", node, "master", UPLINK, "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
