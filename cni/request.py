"""One request as the daemon sees it: what the executable sent, parsed and checked once."""

from dataclasses import dataclass

from cni.host import netconf
from cni.host.chain import Primary
from cni.host.environment import Environment
from cni.host.netconf import NetConf
from kernel.netns import identity
from vf.record import Netns, Pod


@dataclass(frozen=True, slots=True)
class Request:
    """ADD or DEL of one sandbox. `netns_fd` belongs to the connection; None: the namespace is gone."""

    environment: Environment
    conf: NetConf
    netns_fd: int | None

    @property
    def pod(self) -> Pod:
        """Name the pod as the runtime did."""
        environment = self.environment
        return Pod(environment.pod_namespace(), environment.pod_name(), environment.pod_uid())

    def netns(self) -> Netns | None:
        """Name the sandbox's namespace for a record; None if it is gone."""
        return None if self.netns_fd is None else Netns(self.environment.netns, *identity(self.netns_fd))


def parse(raw_environment: dict[bytes, bytes], stdin: bytes, netns_fd: int | None) -> Request:
    """Check what the executable sent.

    Raises:
        CniError: code 1, 4, 6 or 7, as `Environment` and `netconf.parse` say.
    """
    return Request(Environment(raw_environment), netconf.parse(stdin), netns_fd)


def primary_as_recorded(primary: Primary, runtime_config: dict[str, object]) -> dict[str, object]:
    """Spell the primary for a record, so that DEL runs what ADD ran whatever the file says by then."""
    conf = {"name": primary.name, "cniVersion": primary.version, "plugins": primary.plugins}
    return {"conf": conf, "runtimeConfig": runtime_config}
