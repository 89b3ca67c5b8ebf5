"""Where a distribution has the parts of a node: a simulated node's files are put there, and Railnet is configured so."""

import json
import shutil
from pathlib import Path

from simnode.kubernetes.cri import SOCKET
from simnode.preinstalled_files import CONFIGURATION

FOLDERS = tuple(map(Path, ("/var/lib/rancher", "/var/lib/k0s", "/var/snap", "/etc/kubernetes")))
"""Folders of distributions that a simulated node does not have."""

USUAL_CONF, USUAL_BIN = Path("/etc/cni/net.d"), Path("/opt/cni/bin")
_OURS = "00-railnet.conflist"
_K3S_VERSION = Path("/var/lib/rancher/k3s/data/0123abcd/bin")  # K3s names this folder by a hash of its content
_RAILNETS = ("railnet", ".railnet")


class Paths:
    """Where the parts of a node are: as its `host` says, else where they usually are."""

    def __init__(self, host: dict[str, str]) -> None:
        self.host = host
        self.conf = Path(host.get("cniConf", USUAL_CONF))
        self.bin = Path(host.get("cniBin", USUAL_BIN))
        self.cri = Path(host.get("cri", SOCKET))

    @property
    def ours(self) -> Path:
        return self.conf / _OURS

    @property
    def executable(self) -> Path:
        return self.bin / "railnet"

    @property
    def primary(self) -> Path:
        return self.conf / "10-flannel.conflist"

    def make(self) -> None:
        """Have the runtime's folders on the node, with flannel and the plugins in them, and none in the usual folders."""
        if self.bin != USUAL_BIN:
            self._put_plugins()
        self.conf.mkdir(parents=True, exist_ok=True)
        if self.conf != USUAL_CONF:
            shutil.move(USUAL_CONF / "10-flannel.conflist", self.primary)
        if "flannel" in self.host:
            self._put_lease(Path(self.host["flannel"]))

    def _put_plugins(self) -> None:
        if "/snap/" in str(self.bin):  # the folder of the current revision is a link
            Path("/var/snap/microk8s/9072").mkdir(parents=True)
            Path("/var/snap/microk8s/current").symlink_to("/var/snap/microk8s/9072")
        self.bin.mkdir(parents=True)
        is_k3s = "/k3s/" in str(self.bin)
        real = _K3S_VERSION if is_k3s else self.bin
        real.mkdir(parents=True, exist_ok=True)
        for plugin in [path for path in USUAL_BIN.iterdir() if path.name not in _RAILNETS]:
            shutil.move(plugin, real / plugin.name)
            if is_k3s:
                (self.bin / plugin.name).symlink_to(real / plugin.name)

    def undo(self) -> None:
        """Put the primary and the plugins of K3s back into the usual folders."""
        shutil.move(self.primary, USUAL_CONF / self.primary.name)
        for plugin in _K3S_VERSION.iterdir():
            shutil.move(plugin, USUAL_BIN / plugin.name)

    def _put_lease(self, lease: Path) -> None:
        """Write what MicroK8s' flannel has in its own folders (canonical/microk8s, default-args/flannel-template.conflist)."""
        lease.parent.mkdir(parents=True)
        Path("/var/snap/microk8s/common/var/lib/cni/flannel").mkdir(parents=True)
        shutil.move("/run/flannel/subnet.env", lease)
        conflist = json.loads(self.primary.read_text())
        conflist["plugins"][0] |= {"subnetFile": str(lease), "dataDir": "/var/snap/microk8s/common/var/lib/cni/flannel"}
        self.primary.write_text(json.dumps(conflist))


def configure(host: dict[str, str]) -> None:
    document = json.loads(CONFIGURATION.read_text())
    document["host"] = {key: document["host"][key] for key in ("root", "sysfs")} | host
    CONFIGURATION.write_text(json.dumps(document))
