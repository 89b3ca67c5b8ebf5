"""libcni's cache: what a container runtime remembers of each ADD, one file per attachment. Pure: bytes in, values out.

Source: containernetworking/cni, libcni/api.go, cachedInfo. The caller decides which entries concern Railnet or a network.
"""

import base64
import json
from ipaddress import ip_interface
from typing import Any, NamedTuple

from cni.host.environment import is_container_id
from railnet.vf.address_slice import IpAddress
from railnet.vf.record import SandboxPod

FOLDER = "/var/lib/cni/results"  # libcni's CacheDir: containerd, CRI-O
FOLDERS = (FOLDER, "/var/lib/cni/cache/results")  # the second one: dockershim, cri-dockerd
_KIND = "cniCacheV1"


class CachedAdd(NamedTuple):
    """Libcni remembers this of an ADD.

    `pod` is as the runtime named it. `config` is the network configuration in base64, `result` the ADD's result,
    `runtime_config` what the runtime passed for capabilities.
    """

    container_id: str
    ifname: str
    network: str
    pod: SandboxPod
    config: str
    result: dict[str, Any]
    runtime_config: dict[str, Any]

    @property
    def plugins(self) -> tuple[str, ...]:
        """The types of the configuration's plugins.

        Raises:
            ValueError: the configuration cannot be read.
        """
        try:
            configuration = json.loads(base64.b64decode(self.config))
            return tuple(str(plugin["type"]) for plugin in configuration.get("plugins", [configuration]))
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"the configuration of a cached ADD cannot be read: {error!r}") from None

    @property
    def key(self) -> str:
        """The name of the attachment's record in Railnet's journal, if it has one."""
        return f"{self.container_id}@{self.ifname}"

    @property
    def addresses(self) -> tuple[IpAddress, ...]:
        """The addresses of the result.

        Raises:
            ValueError: one is no address.
        """
        return tuple(ip_interface(str(ip.get("address"))).ip for ip in _objects(self.result, "ips"))

    @property
    def sandboxes(self) -> tuple[str, ...]:
        """The paths of the namespaces that interfaces were put into."""
        return tuple(
            str(interface["sandbox"]) for interface in _objects(self.result, "interfaces") if interface.get("sandbox")
        )

    @property
    def host_links(self) -> tuple[tuple[str, str], ...]:
        """The names and hardware addresses of the interfaces that were made on the node."""
        on_node = [interface for interface in _objects(self.result, "interfaces") if not interface.get("sandbox")]
        return tuple(
            (str(interface.get("name")), str(interface["mac"])) for interface in on_node if interface.get("mac")
        )


def parse(content: bytes) -> CachedAdd:
    """Parse one file of the cache.

    Raises:
        ValueError: it is no entry of libcni's cache.
    """
    try:
        document = json.loads(content)
        if document["kind"] != _KIND or not is_container_id(document["containerId"]):
            raise ValueError("no container's entry of this version")
        arguments = {str(key): str(value) for key, value in document.get("cniArgs") or ()}
        return CachedAdd(
            document["containerId"],
            str(document["ifName"]),
            str(document["networkName"]),
            SandboxPod(*(arguments.get(f"K8S_POD_{part}", "") for part in ("NAMESPACE", "NAME", "UID"))),
            str(document.get("config") or ""),
            dict(document["result"]),
            dict(document.get("capabilityArgs") or {}),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no entry of libcni's cache: {error!r:.200}") from None


def with_configuration(content: bytes, configuration: bytes) -> bytes:
    """Return a file of the cache, which `parse` has accepted, with another network configuration.

    CRI-O runs CHECK and DEL with the configuration in this file (cri-o/ocicni, pkg/ocicni/ocicni.go, loadNetworkFromCache).
    containerd runs them with the configuration that is in its folder at that time.
    """
    return json.dumps({**json.loads(content), "config": base64.b64encode(configuration).decode()}).encode()


def _objects(result: dict[str, Any], key: str) -> list[dict[str, Any]]:
    listed = result.get(key)
    return [json_object for json_object in listed if isinstance(json_object, dict)] if isinstance(listed, list) else []
