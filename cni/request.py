"""One request as the daemon sees it: what the executable sent, parsed and checked once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cni.host import chain, netconf
from cni.host.chain import Primary
from cni.host.environment import Environment
from cni.host.errors import CONFIGURATION, CniError
from cni.host.netconf import NetConf
from kernel.files import read_below
from kernel.netns import identity
from vf.record import Netns, Pod, Record

_CONFIG_SOURCE = "kubernetes.io/config.source"  # kubelet says it of every pod


@dataclass(frozen=True, slots=True)
class Request:
    """One verb for one sandbox. `netns` names its namespace, None if it is gone; the descriptor stays with `ExecutableConnection`."""

    environment: Environment
    conf: NetConf
    netns: Netns | None

    @property
    def pod(self) -> Pod:
        """Name the pod as the runtime did."""
        environment = self.environment
        return Pod(environment.pod_namespace(), environment.pod_name(), environment.pod_uid())

    @property
    def static(self) -> bool:
        """Tell whether kubelet has the pod from a file or URL of its own, where the runtime passes annotations.

        Its UID is then a hash of its configuration, and not that of its mirror in the API server.
        Source: kubernetes/kubernetes, pkg/kubelet/types/pod_update.go and pkg/kubelet/config/common.go.
        """
        source: str = self.conf.annotations.get(_CONFIG_SOURCE, "api")
        return source != "api"

    def primary(self, root: Path) -> Primary:
        """Read the primary configuration on the host, whose mount namespace is seen at `root`.

        Raises:
            CniError: code 7, it is missing, unreadable, broken, or names Railnet itself.
        """
        path = self.conf.primary
        try:
            return chain.parse(read_below(root, path), path, self.conf.version)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            why = getattr(error, "strerror", None) or error
            raise CniError(CONFIGURATION, f"the primary configuration {path} cannot be read: {why}") from None


def parse(raw_environment: dict[bytes, bytes], stdin: bytes, netns_fd: int | None) -> Request:
    """Check what the executable sent.

    Raises:
        CniError: code 1, 4, 6 or 7, as `Environment` and `netconf.parse` say.
    """
    environment = Environment(raw_environment)
    netns = None if netns_fd is None else Netns(environment.netns, *identity(netns_fd))
    return Request(environment, netconf.parse(stdin, environment.command), netns)


def primary_as_recorded(primary: Primary, runtime_config: dict[str, object]) -> dict[str, object]:
    """Spell the primary for a record, so that CHECK and DEL run what ADD ran whatever the file says by then."""
    conf = {
        "name": primary.name,
        "cniVersion": primary.version,
        "plugins": primary.plugins,
        "disableCheck": primary.disable_check,
    }
    return {"conf": conf, "runtimeConfig": runtime_config}


def primary_at_add(request: Request, record: Record, root: Path) -> tuple[Primary, dict[str, Any]]:
    """Give the primary that a sandbox's ADD ran, with its `runtimeConfig`; the present one where that was lost.

    Raises:
        CniError: as `Request.primary`.
    """
    if record.adopted:
        return request.primary(root), request.conf.runtime_config
    return recorded_primary(record)


def recorded_primary(record: Record) -> tuple[Primary, dict[str, Any]]:
    """Read what `primary_as_recorded` spelled: the primary and its `runtimeConfig`."""
    conf = record.primary["conf"]
    primary = Primary(conf["name"], conf["cniVersion"], conf["plugins"], conf["disableCheck"])
    return primary, record.primary["runtimeConfig"]
