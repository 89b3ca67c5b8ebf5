"""Stand-ins for the installers of service meshes: each does to the CNI folder what its source does, and nothing else.

Istio's: istio.io/istio v0.0.0-20260827124520-eed52ebb66ad, cni/pkg/install (install.go: Run, checkValidCNIConfig, Cleanup;
cniconfig.go: writeCNIConfig, getCNIConfigFilepath, insertCNIConfig). Linkerd's: linkerd/linkerd2-proxy-init at 0c4bb3ab,
cni-plugin/deployment/scripts/install-cni.sh (sync, install_cni_conf, cleanup). Consul's: hashicorp/consul-k8s,
control-plane/subcommand/install-cni (command.go at 08976bed: Run, directoryWatcher, cleanup; cniconfig.go at 172786e6). Kuma's: kumahq/kuma,
app/cni/pkg/install (main.go at 16cd6aef, installer_config.go at 0eb85212, validation.go at 5d7a4e85, transform.go at 8a6739ee). A look every few milliseconds stands for inotify.
"""

import hashlib
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.node.primaries import PLUGINS

RECORD = Path("/run/mesh-record")
_LOOK_SECONDS = 0.02
_THROTTLE_SECONDS = 1.0  # install.go, installationThrottle

# A chained plugin: it writes down each call, and passes the result on.
_PLUGIN = f"""#!{sys.executable} -I
import json, os, sys

conf, command = json.load(sys.stdin), os.environ["CNI_COMMAND"]
with open("{RECORD}", "a") as file:
    file.write(f"{{conf['type']}} {{command}} {{os.environ.get('CNI_CONTAINERID')}}\\n")
if command == "ADD":
    print(json.dumps(conf["prevResult"]))
"""

Conf = dict[str, Any]


class Installer:
    """A program that puts its plugin into the configurations of a folder, and looks after it until it ends."""

    def __init__(self, kind: str, folder: Path = Path("/etc/cni/net.d")) -> None:
        """Install a plugin of this type; nothing is done before `start`."""
        self.kind, self.folder = kind, folder
        self._end, self._thread = threading.Event(), threading.Thread()

    def start(self) -> None:
        """Put the executable in its place, and begin."""
        (PLUGINS / self.kind).write_text(_PLUGIN)
        (PLUGINS / self.kind).chmod(0o755)
        self._begin()
        self._end.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End as for an upgrade: what was installed stays."""
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join()

    def remove(self) -> None:
        """End as when the DaemonSet is deleted: clean up."""
        self.stop()
        self._clean()
        (PLUGINS / self.kind).unlink(missing_ok=True)

    def _run(self) -> None:
        while not self._end.is_set():
            self._end.wait(_THROTTLE_SECONDS if self._look() else _LOOK_SECONDS)

    def _begin(self) -> None: ...

    def _look(self) -> bool:
        """Do what the program does on a change of the folder; return whether something was written."""
        raise NotImplementedError

    def _clean(self) -> None:
        raise NotImplementedError

    def _without(self, conf: Conf) -> Conf:
        return {**conf, "plugins": [plugin for plugin in conf["plugins"] if plugin["type"] != self.kind]}


class IstioInstaller(Installer):
    """It takes the first file when it starts and stays with it; with `owned`, it keeps a copy of the first file under that name."""

    def __init__(self, folder: Path = Path("/etc/cni/net.d"), owned: str = "") -> None:
        """Install istio-cni."""
        super().__init__("istio-cni", folder)
        self._owned = owned
        self._conf_name, self._written = "", Path()

    def _begin(self) -> None:
        self._conf_name, self._written = "", Path()

    def _look(self) -> bool:
        if self._is_valid():
            return False
        source = self.folder / self._conf_name
        if not source.exists():  # getCNIConfigFilepath waits for it, for ever
            return False
        self._written = self.folder / (self._owned or self._conf_name)
        conf = self._without(json.loads(source.read_bytes()))
        plugin = {"name": "istio-cni", "type": "istio-cni", "plugin_log_level": "info"}
        self._write(self._written, {**conf, "plugins": [*conf["plugins"], plugin]})
        return True

    def _is_valid(self) -> bool:
        names = sorted(path.name for path in self.folder.glob("*.conflist"))
        first = names[0]
        if self._owned and first != self._owned:
            self._conf_name = self._conf_name or first
            return False
        if self.folder / first != self._written and not self._conf_name:
            self._conf_name = names[1] if self._owned else first
            return False
        return self._written.is_file() and self.kind in types(self._written)

    def _clean(self) -> None:
        if self._owned:
            self._written.unlink(missing_ok=True)
        elif self._written.is_file():
            self._write(self._written, self._without(json.loads(self._written.read_bytes())))

    def _write(self, path: Path, conf: Conf) -> None:
        """Write as file.AtomicWrite does, and as Go's json.MarshalIndent prints a map."""
        temporary = path.with_name(f"{path.name}.tmp")
        temporary.write_text(_as_go(conf))
        temporary.rename(path)


class LinkerdInstaller(Installer):
    """It appends its plugin to each file whose checksum is not the one it wrote. A file of one plugin becomes a list (filter.jq)."""

    def __init__(self, folder: Path = Path("/etc/cni/net.d")) -> None:
        """Install linkerd-cni."""
        super().__init__("linkerd-cni", folder)
        self._sums: dict[Path, str] = {}

    def _begin(self) -> None:
        self._sums = {}

    def _look(self) -> bool:
        for path in sorted((*self.folder.glob("*.conf"), *self.folder.glob("*.conflist"))):
            try:
                self._sync(path)
            except (FileNotFoundError, ValueError):  # moved away meanwhile, or half written: jq prints nothing
                continue
        return False

    def _sync(self, path: Path) -> None:
        if hashlib.sha256(path.read_bytes()).hexdigest() == self._sums.get(path):
            return
        conf = json.loads(path.read_bytes())
        if "type" in conf:
            plugin = {key: value for key, value in conf.items() if key != "cniVersion"}
            conf = {"plugins": [plugin], "name": "k8s-pod-network", "cniVersion": "0.3.0"}
        conf = self._without(conf)
        plugin = {"name": "linkerd-cni", "type": "linkerd-cni", "log_level": "info", "policy": {"type": "k8s"}}
        content = json.dumps({**conf, "plugins": [*conf["plugins"], plugin]}, indent=2).encode() + b"\n"
        written = path.with_suffix(".conflist")
        self._sums[written] = hashlib.sha256(content).hexdigest()
        temporary = path.with_name("linkerd-cni.conf.default")
        temporary.write_bytes(content)
        temporary.rename(written)
        if written != path:
            path.unlink()

    def _clean(self) -> None:
        for path in sorted(self.folder.glob("*.conflist")):
            content = json.dumps(self._without(json.loads(path.read_bytes())), indent=2) + "\n"
            path.write_text(content)  # `echo "$cni_data" > "$file"`: in place


class ConsulInstaller(Installer):
    """It keeps its plugin the last one of the first file. Whenever it ends it takes the plugin out of that file, and each start has another token."""

    def __init__(self, folder: Path = Path("/etc/cni/net.d")) -> None:
        """Install consul-cni."""
        super().__init__("consul-cni", folder)
        self._plugin: Conf = {}
        self._starts = 0

    def _begin(self) -> None:
        self._starts += 1
        token = f"{self.folder}/consul-cni-host-token-{self._starts}"
        self._plugin = {"name": "consul-cni", "type": "consul-cni", "cni_host_token_path": token, "multus": False}

    def _look(self) -> bool:
        path, conf = self._first()
        if conf["plugins"][-1:] == [self._plugin]:  # validConfig
            return False
        path.write_text(
            _as_go({**conf, "plugins": [*self._without(conf)["plugins"], self._plugin]})
        )  # os.WriteFile: in place
        return False

    def _first(self) -> tuple[Path, Conf]:
        """Return the first file that is a list (defaultCNIConfigFile)."""
        for path in sorted(self.folder.glob("*.conflist")):
            try:
                return path, json.loads(path.read_bytes())
            except (FileNotFoundError, ValueError):  # moved away meanwhile, or half written
                continue
        return self.folder / "none", {"plugins": [self._plugin]}

    def stop(self) -> None:
        """End; for Consul's this is to clean up, all but its executable."""
        super().stop()
        self._clean()

    def _clean(self) -> None:
        path, conf = self._first()
        path.write_text(_as_go(self._without(conf)))


class KumaInstaller(Installer):
    """It chooses a file when it starts, appends its plugin to it, and ends if the plugin is gone. Whenever it ends it cleans up."""

    def __init__(self, folder: Path = Path("/etc/cni/net.d")) -> None:
        """Install kuma-cni."""
        super().__init__("kuma-cni", folder)
        self._chosen = Path()

    def _begin(self) -> None:
        self._chosen = next(iter(sorted(self.folder.glob("*.conf")) or sorted(self.folder.glob("*.conflist"))))
        conf = self._without(json.loads(self._chosen.read_bytes()))
        self._replace({**conf, "plugins": [*conf["plugins"], {"type": "kuma-cni", "name": "kuma-cni"}]})

    def _look(self) -> bool:
        if not self._chosen.exists() or self.kind not in types(self._chosen):  # checkInstall
            self._clean()
            self._end.set()
        return True

    def stop(self) -> None:
        """End; for Kuma's this is to clean up."""
        super().stop()
        self._clean()

    def _clean(self) -> None:
        (PLUGINS / self.kind).unlink(missing_ok=True)
        if self._chosen.exists():
            self._replace(self._without(json.loads(self._chosen.read_bytes())))

    def _replace(self, conf: Conf) -> None:
        temporary = self._chosen.with_name("kuma.tmp")
        temporary.write_text(_as_go(conf))
        temporary.rename(self._chosen)


def _as_go(conf: Conf) -> str:
    """Print a map as Go's json.MarshalIndent does."""
    return json.dumps(conf, indent=2, sort_keys=True) + "\n"


def types(path: Path) -> list[str]:
    """Return the types of a conflist's plugins; none if it is half written."""
    try:
        return [plugin["type"] for plugin in json.loads(path.read_bytes())["plugins"]]
    except ValueError:
        return []


def calls(kind: str, command: str) -> dict[str, int]:
    """Return how often a plugin was called with a command, by container."""
    counts: dict[str, int] = {}
    for line in RECORD.read_text().splitlines() if RECORD.exists() else ():
        plugin, called, container = line.split()
        if (plugin, called) == (kind, command):
            counts[container] = counts.get(container, 0) + 1
    return counts


INSTALLERS: dict[str, Callable[[], Installer]] = {
    "istio": IstioInstaller,
    "istio's own file": lambda: IstioInstaller(owned="02-istio-cni.conflist"),
    "istio's own file, first": lambda: IstioInstaller(owned="00-istio-cni.conflist"),
    "linkerd": LinkerdInstaller,
}
# Between an end and the next start no pod gets the plugin, with Railnet and without.
CLEAN_WHENEVER_THEY_END: dict[str, Callable[[], Installer]] = {"consul": ConsulInstaller, "kuma": KumaInstaller}
