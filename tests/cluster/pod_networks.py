"""What a pod's network shows: its address on net1, as its node has published it, and the bytes and connections of its interfaces."""

import json
import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, NamedTuple

from tests.cluster.kubectl import Kubectl

_ESTABLISHED = "01"  # include/net/tcp_states.h
_SHOW = "print(*(open(f'/proc/net/{name}').read() for name in ('dev', 'tcp', 'tcp6')), sep='\\n--\\n')"


class Traffic(NamedTuple):
    """What a pod's network namespace shows.

    Attributes:
        connections: local and remote addresses of all established TCP connections.
        bytes: sent and received, by interface.
    """

    connections: frozenset[tuple[str, str]]
    bytes: Mapping[str, int]


def net1(pod: Mapping[str, Any]) -> str:
    """Return a pod's address on net1, as its node has published it; empty if it has not yet."""
    networks = json.loads(pod["metadata"].get("annotations", {}).get("k8s.v1.cni.cncf.io/network-status", "[]"))
    return next((one["ips"][0] for one in networks if one["interface"] == "net1"), "")


def traffic(kubectl: Kubectl, namespace: str, pod: str) -> Traffic:
    """Return what a pod sees, whose container has Python."""
    command = ("exec", pod, f"--namespace={namespace}", "--", "python", "-c", _SHOW)
    device, *sockets = kubectl.run(*command).split("\n--\n")
    lines = [line.split() for text in sockets for line in text.splitlines()]
    pairs = {(_plain(line[1]), _plain(line[2])) for line in lines if len(line) > 3 and line[3] == _ESTABLISHED}
    counted = re.findall(r"^ *(\w+): *(\d+)(?: +\d+){7} +(\d+)", device, re.MULTILINE)
    return Traffic(
        frozenset(pair for pair in pairs if not ip_address(pair[0]).is_loopback),
        {name: int(received) + int(sent) for name, received, sent in counted if name != "lo"},
    )


def _plain(text: str) -> str:
    """Return an address of /proc/net/tcp or tcp6 (proc(5)): words of four bytes in the machine's order, which is little-endian."""
    words = re.findall("." * 8, text.partition(":")[0])
    found = ip_address(b"".join(bytes.fromhex(word)[::-1] for word in words))
    return str(getattr(found, "ipv4_mapped", None) or found)
