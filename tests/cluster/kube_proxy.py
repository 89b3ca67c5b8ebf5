"""The real kube-proxy, which forwards Services' addresses to pods by iptables rules.

Why the mode `iptables`: most clusters have it, and all that it needs is in the machine's kernel, which has no loadable modules
(addrtype, comment, conntrack, mark, statistic, DNAT, MASQUERADE, br_netfilter). `ipvs` needs CONFIG_IP_VS, which the kernel
lacks. `nftables` needs a kernel with nf_tables and the program nft.
"""

import re
import subprocess

from tests.cluster.control_plane import KUBE_PROXY
from tests.cluster.ground import POD_SUBNET, address_of
from tests.cluster.process import Program

_START_SECONDS = 180.0
_CLEAN_UP_SECONDS = 180.0
# What --cleanup leaves (pkg/proxy/iptables/proxier.go, 1.34 and 1.37): the chain that keeps packets for 127.0.0.0/8 of other hosts away.
_LEFT = (
    "--delete INPUT --jump KUBE-FIREWALL",
    "--delete OUTPUT --jump KUBE-FIREWALL",
    "--flush KUBE-FIREWALL",
    "--delete-chain KUBE-FIREWALL",
)
_SERVICE = re.compile(r'-A KUBE-(?:SERVICES|SVC-\w+|SEP-\w+) .*--comment "?(\S+?/[^:\s"]+)')


class KubeProxy:
    """kube-proxy; its rules outlive it until `stop` removes them."""

    def __init__(self, node: str) -> None:
        """Describe the kube-proxy of a node."""
        self._command = _command(node)
        self.program = Program(self._command)

    def start(self) -> None:
        """Start it; returns at once."""
        self.program.start()

    def wait(self) -> None:
        """Wait until it forwards. Its health check passes before it has read the first Service."""
        self.program.wait(lambda: "default/kubernetes" in services(), _START_SECONDS)

    def stop(self) -> None:
        """End it and remove its rules.

        Raises:
            RuntimeError: some are left; the message has them, and what kube-proxy said.
        """
        self.program.stop()
        # Its status is 1 where there is no program `ipset`, which only the mode `ipvs` needs: what counts is what is left.
        done = subprocess.run(
            [*self._command, "--cleanup"], check=False, capture_output=True, text=True, timeout=_CLEAN_UP_SECONDS
        )
        for rule in _LEFT:
            subprocess.run(["iptables", *rule.split()], check=False, capture_output=True)
        if left := rules():
            raise RuntimeError(f"kube-proxy has left {left}: {done.stderr[-2000:]}")


def rules() -> list[str]:
    """Return the lines of `iptables-save` that kube-proxy wrote: each of its chains has a name that begins with KUBE-."""
    saved = subprocess.run(["iptables-save"], check=True, capture_output=True, text=True).stdout
    return [line for line in saved.splitlines() if "KUBE-" in line]


def services() -> set[str]:
    """Return the Services that the node's rules forward or refuse, as `namespace/name`."""
    found = map(_SERVICE.match, rules())
    return {match[1] for match in found if match is not None}


def _command(node: str) -> list[str]:
    return [
        "kube-proxy",
        f"--kubeconfig={KUBE_PROXY}",
        f"--hostname-override={node}",
        f"--bind-address={address_of(node)}",  # else kube-proxy asks for the node's address before there is a node, for a minute
        "--healthz-bind-address=127.0.0.1:10256",
        "--metrics-bind-address=127.0.0.1:10249",
        "--proxy-mode=iptables",
        f"--cluster-cidr={POD_SUBNET}",
        # The machine's conntrack table is not the node's to change.
        "--conntrack-max-per-core=0",
        "--conntrack-min=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    ]
