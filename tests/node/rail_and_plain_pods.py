"""A pod with a rail and a pod without, on a node that is tried: with the daemon, and the plain one without it, too."""

import subprocess

from simnode.kubernetes.runtime import Sandbox
from simnode.node import Node, Pod


def has_net1(pod: Pod | Sandbox) -> bool:
    command = ["nsenter", f"--net={pod.netns}", "ip", "link", "show", "net1"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def serve_pods(node: Node) -> None:
    """Try pods with a rail and without, with the daemon and without it; the daemon is stopped afterwards."""
    rail, plain = node.run_pod("train", vfs=1), node.run_pod("plain")
    assert (has_net1(rail), has_net1(plain)) == (True, False)
    node.remove_pod(rail)
    node.remove_pod(plain)
    node.stop_daemon()
    node.remove_pod(node.run_pod("plain"))
