"""What a pod of a service account finds: the account's token, and where the API server is."""

import os
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.manifests import NAMESPACE
from tests.control_plane.proxy import ApiProxy
from tests.control_plane.server import ApiServer


class Account:
    """A service account of Railnet's namespace, for a program that is a process."""

    def __init__(self, server: ApiServer, folder: Path, name: str) -> None:
        """Keep its files in a folder."""
        self._server, self.folder, self._name = server, folder, name

    def write(self) -> None:
        """Write the files that kubelet mounts, with a new token."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / "token").write_text(self._server.token(NAMESPACE, self._name))
        (self.folder / "namespace").write_text(NAMESPACE)
        (self.folder / "ca.crt").write_bytes(self._server.api.authority.read_bytes())

    def environment(self, proxy: ApiProxy | None) -> Mapping[str, str]:
        """Return the variables of a process; it finds the API server, or a proxy in front of it."""
        host, port = (self._server.api.host, 443) if proxy is None else (proxy.host, proxy.port)
        return {**os.environ, "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port)}
