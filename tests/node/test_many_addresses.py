"""A pod with NET_ADMIN gives its netdev thousands of addresses: the kernel drops all of them when the netdev leaves, in one request."""

import subprocess
from ipaddress import ip_address

import pytest

from simnode.node import Node
from tests.node.primaries import left_over

ADDRESSES = 5_000  # with 50,000, for which the pod needs four minutes, the DEL takes 0.7 s


@pytest.mark.parametrize(("first", "prefix"), [("10.99.0.1", 32), ("10.99.0.1", 8), ("fd99::1", 128)])
def test_del_of_a_pod_with_thousands_of_addresses_leaves_none_for_the_next_pod(
    node: Node, first: str, prefix: int
) -> None:
    pod = node.run_pod("hostile", vfs=1)
    nodad = "nodad" if ":" in first else ""
    lines = "".join(f"address add {ip_address(first) + n}/{prefix} dev net1 {nodad}\n" for n in range(ADDRESSES))
    add = ["nsenter", f"--net={pod.netns}", "ip", "-batch", "-"]
    subprocess.run(add, input=lines, text=True, check=True)

    node.remove_pod(pod)
    other = node.run_pod("other", vfs=1)
    show = ["nsenter", f"--net={other.netns}", "ip", "-oneline", "address", "show", "dev", "net1", "scope", "global"]
    addresses = subprocess.run(show, check=True, capture_output=True, text=True).stdout.splitlines()
    node.remove_pod(other)

    assert len(addresses) == 1
    assert left_over(node) == []
