"""One request as the daemon has it: parsed and checked once, from what the executable sent."""

from collections.abc import Mapping
from dataclasses import dataclass

from cni.host import netconf
from cni.host.environment import ADD, CHECK, Environment
from cni.host.errors import ENVIRONMENT, CniError
from cni.host.netconf import NetConf
from railnet.kernel.namespaces.netns import NetnsIdentity, identity, is_nodes_own
from railnet.vf.record import Netns, SandboxPod

_CONFIG_SOURCE = "kubernetes.io/config.source"  # kubelet annotates every pod with it


@dataclass(frozen=True, slots=True)
class CniRequest:
    """One verb for one sandbox.

    `netns` names its namespace, None if it is gone; `ExecutableConnection` owns the descriptor. `pod` is as the runtime
    named it.
    """

    environment: Environment
    conf: NetConf
    netns: Netns | None
    pod: SandboxPod

    @property
    def static(self) -> bool:
        """Return whether kubelet has the pod from a file or URL of its own, as `is_static`."""
        return is_static(self.conf.annotations)


def is_static(annotations: Mapping[str, str]) -> bool:
    """Return whether kubelet has the pod with these annotations from a file or URL of its own; False if the runtime passes no annotations.

    The UID of such a pod is a hash of its configuration, and not the UID of its mirror in the API server.
    Source: kubernetes/kubernetes, pkg/kubelet/types/pod_update.go and pkg/kubelet/config/common.go.
    """
    return annotations.get(_CONFIG_SOURCE, "api") != "api"


def parse(raw_environment: dict[bytes, bytes], stdin: bytes, netns_fd: int | None) -> CniRequest:
    """Parse and check what the executable sent.

    Raises:
        CniError: code 1, 4, 6 or 7, as `Environment` and `netconf.parse` say; or code 4, CNI_NETNS is the node's own namespace.
    """
    environment = Environment(raw_environment)
    netns = None if netns_fd is None else Netns(environment.netns, *identity(netns_fd))
    # A DEL is served: it takes back what its record says, from the namespace that the record names.
    if netns is not None and environment.command in (ADD, CHECK) and is_nodes_own(NetnsIdentity(*netns[1:])):
        raise CniError(
            ENVIRONMENT,
            f"CNI_NETNS {environment.netns!r} is the node's own network namespace; it should be the sandbox's network namespace",
        )
    pod = SandboxPod(environment.pod_namespace(), environment.pod_name(), environment.pod_uid())
    return CniRequest(environment, netconf.parse(stdin, environment.command), netns, pod)
