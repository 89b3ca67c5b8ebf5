"""A simulated container runtime, as far as a CNI plugin sees it: sandboxes, and plugin calls as containerd and libcni make them.

It makes no containers and no devices; `node` decides which pod runs.
"""

import base64
import contextlib
import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simnode.kubernetes import cni_config
from simnode.kubernetes.cni_config import NetworkList
from simnode.kubernetes.cri import ListedSandbox
from simnode.linux import netns

# The environment of containerd's systemd unit, which libcni passes on to plugins.
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "INVOCATION_ID": "5a7d3b6c1e0f4d0c8f1b2a3c4d5e6f70",
}


_NO_NAMESPACE = Path("/nonexistent")
Started = Callable[["subprocess.Popen[bytes]"], object]


def _ignore(process: "subprocess.Popen[bytes]") -> None:
    """Do nothing with a plugin that has started."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A pod's sandbox; a plugin that declares a capability gets its value of `capability_args`."""

    container_id: str
    netns: Path
    namespace: str
    pod: str
    uid: str
    capability_args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Invocation:
    """One finished execution of a plugin: its input and its result; `status` is negative for a signal."""

    plugin: str
    command: str
    env: Mapping[str, str]
    stdin: bytes
    stdout: bytes
    stderr: bytes
    status: int
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Added:
    """A successful ADD: the result that the last plugin printed, byte for byte, and the execution of each plugin."""

    result: bytes
    invocations: tuple[Invocation, ...]

    @property
    def milliseconds(self) -> float:
        """The sum of all plugins' times."""
        return sum(invocation.milliseconds for invocation in self.invocations)


class CniFailed(RuntimeError):
    """A plugin failed; `code` is the CNI error code, or None if the plugin printed no valid error."""

    def __init__(self, invocation: Invocation) -> None:
        self.invocation = invocation
        self.code, self.msg, self.details = _parse_error(invocation)
        super().__init__(
            f"plugin {invocation.plugin} {invocation.command} failed ({self.code}): {self.msg} {self.details}"
        )


class CheckUnsupported(RuntimeError):
    """The network's version has no CHECK; libcni reports this before it calls a plugin."""


def _parse_error(invocation: Invocation) -> tuple[int | None, str, str]:
    try:
        error = json.loads(invocation.stdout)
        return int(error["code"]), str(error["msg"]), str(error.get("details", ""))
    except (ValueError, KeyError, TypeError):
        text = (invocation.stdout or invocation.stderr).decode(errors="replace")
        return None, f"netplugin failed (status {invocation.status}): {text!r}", ""


class Runtime:
    """A runtime that executes the plugins of the folder `plugins` for the network configured in `configurations`.

    Attributes:
        configurations: the folder of CNI configurations; a caller may set another folder.
        remembers: True if DEL uses ADD's configuration from the cache, as CRI-O does (cri-o/ocicni,
            pkg/ocicni/ocicni.go, loadNetworkFromCache); False if it uses the current one, as containerd does.
        starter: a command that executes the plugin in its arguments, such as a tracer.
    """

    def __init__(
        self,
        configurations: Path = Path("/etc/cni/net.d"),
        plugins: Path = Path("/opt/cni/bin"),
        results: Path = Path("/var/lib/cni/results"),
        namespaces: Path = Path("/run/netns"),
    ) -> None:
        self.configurations, self.remembers = configurations, False
        self.starter: Sequence[str] = ()
        self._plugins, self._results, self._namespaces = plugins, results, namespaces
        self._sandboxes: dict[str, Sandbox] = {}
        self._listed: set[str] = set()
        self._on_host: list[ListedSandbox] = []

    def look_in(self, configurations: Path, plugins: Path) -> None:
        """Look in other folders, as a runtime does that was started again with another configuration."""
        self.configurations, self._plugins = configurations, plugins

    def listed(self) -> tuple[ListedSandbox, ...]:
        """Return what CRI lists: as in containerd, the sandboxes whose ADD has succeeded, and those on the host's network."""
        made = [one for id_ in tuple(self._listed) if (one := self._sandboxes.get(id_)) is not None]
        return (*(ListedSandbox(one.container_id, one.uid) for one in made), *self._on_host)

    def create_host_sandbox(self, uid: str) -> None:
        """Make a sandbox on the host's network; the runtime calls no plugin for it."""
        self._on_host.append(ListedSandbox(uuid.uuid4().hex * 2, uid, on_host=True))

    def create_sandbox(
        self, namespace: str, pod: str, uid: str, capability_args: Mapping[str, Any] | None = None
    ) -> Sandbox:
        """Make a sandbox: an id and a network namespace with `lo` up; call no plugin."""
        path = self._namespaces / f"cni-{uuid.uuid4()}"
        netns.create(path)
        sandbox = Sandbox(uuid.uuid4().hex * 2, path, namespace, pod, uid, capability_args or {})
        self._sandboxes[sandbox.container_id] = sandbox
        return sandbox

    def remove_sandbox(self, sandbox: Sandbox) -> None:
        """Remove the sandbox and its network namespace; call no plugin."""
        netns.remove(sandbox.netns)
        self._sandboxes.pop(sandbox.container_id, None)
        self._listed.discard(sandbox.container_id)

    def remove_sandboxes(self) -> None:
        """Remove all sandboxes that are left; call no plugin."""
        for sandbox in tuple(self._sandboxes.values()):
            self.remove_sandbox(sandbox)

    def set_up(self, sandbox: Sandbox) -> Added:
        """Run ADD; if it fails, run DEL and remove the network namespace, as containerd does.

        Raises:
            CniFailed: ADD failed; the error has a note if the DEL failed, too.
        """
        try:
            return self.add(sandbox)
        except CniFailed as failure:
            try:
                self.delete(sandbox)
            except CniFailed as second:
                failure.add_note(f"the DEL after it failed, too: {second}")
            self.remove_sandbox(sandbox)
            raise

    def tear_down(self, sandbox: Sandbox) -> tuple[Invocation, ...]:
        """Run DEL, then remove the network namespace; if DEL fails, keep the namespace for the next attempt."""
        invocations = self.delete(sandbox)
        self.remove_sandbox(sandbox)
        return invocations

    def add(self, sandbox: Sandbox, ifname: str = "eth0", started: Started = _ignore) -> Added:
        """Run ADD of each plugin in order and cache the result; `started` is as in `invoke`.

        Raises:
            CniFailed: a plugin failed; nothing is undone.
        """
        network = cni_config.find(self.configurations)
        result: bytes | None = None
        invocations = []
        for plugin in network.plugins:
            stdin = cni_config.stdin(network, plugin, sandbox.capability_args, result)
            environment = self.environment("ADD", sandbox, ifname)
            invocation = self.invoke("ADD", plugin["type"], environment, stdin, started=started)
            if invocation.status != 0:
                raise CniFailed(invocation)
            result = invocation.stdout
            invocations.append(invocation)
        assert result is not None  # noqa: S101 - a valid list has a plugin
        self._cache(network, sandbox, ifname, result)
        self._listed.add(sandbox.container_id)
        return Added(result, tuple(invocations))

    def check(self, sandbox: Sandbox, ifname: str = "eth0") -> tuple[Invocation, ...]:
        """Run CHECK of each plugin in order, with the cached result.

        Raises:
            CniFailed: a plugin failed; the plugins after it in the list were not run.
            CheckUnsupported: the configuration's version has no CHECK; no plugin was called.
        """
        network = cni_config.find(self.configurations)
        if not network.caches_results:
            raise CheckUnsupported(f"configuration version {network.version} does not support CHECK command")
        cached = self._cached(network, sandbox, ifname)
        invocations = []
        for plugin in () if network.disable_check else network.plugins:
            stdin = cni_config.stdin(network, plugin, sandbox.capability_args, cached)
            invocation = self.invoke("CHECK", plugin["type"], self.environment("CHECK", sandbox, ifname), stdin)
            if invocation.status != 0:
                raise CniFailed(invocation)
            invocations.append(invocation)
        return tuple(invocations)

    def delete(self, sandbox: Sandbox, ifname: str = "eth0", started: Started = _ignore) -> tuple[Invocation, ...]:
        """Run DEL of each plugin in reverse order, then remove the cached result.

        A plugin gets the cached result if the version has it. `started` is as in `invoke`.

        Raises:
            CniFailed: a plugin failed; the plugins before it in the list were not run.
        """
        network = self._network_of(sandbox, ifname) or cni_config.find(self.configurations)
        cached = self._cached(network, sandbox, ifname)
        invocations = []
        for plugin in reversed(network.plugins):
            stdin = cni_config.stdin(network, plugin, sandbox.capability_args, cached)
            environment = self.environment("DEL", sandbox, ifname)
            invocation = self.invoke("DEL", plugin["type"], environment, stdin, started=started)
            invocations.append(invocation)
            if invocation.status != 0:
                raise CniFailed(invocation)
        self._cache_path(network, sandbox, ifname).unlink(missing_ok=True)
        return tuple(invocations)

    def environment(self, command: str, sandbox: Sandbox, ifname: str = "eth0") -> dict[str, str]:
        """Return a plugin's whole environment."""
        return _ENVIRONMENT | {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": sandbox.container_id,
            "CNI_NETNS": str(sandbox.netns) if sandbox.netns.exists() else "",
            "CNI_ARGS": ";".join(f"{key}={value}" for key, value in _arguments(sandbox).items()),
            "CNI_IFNAME": ifname,
            "CNI_PATH": str(self._plugins),
        }

    def collect(self) -> tuple[Invocation, ...]:
        """Run GC as libcni 1.3 does (GCNetworkList): DEL for each cached attachment that is not valid, then GC.

        The attachments of existing sandboxes are valid. A failed DEL is tried again at the next GC.

        Raises:
            CniFailed: GC failed.
        """
        network = cni_config.find(self.configurations)
        cached = sorted(self._results.glob("*-eth0"))  # before `valid`: a sandbox that is made later is no stale one
        valid = tuple(self._sandboxes)
        invocations: list[Invocation] = []
        for path in cached:
            sandbox = _remembered(path)
            if sandbox is not None and sandbox.container_id not in valid:
                with contextlib.suppress(CniFailed):
                    invocations += self.delete(sandbox)
        attachments = [{"containerID": container_id, "ifname": "eth0"} for container_id in valid]
        listed = {"cni.dev/valid-attachments": attachments, "cni.dev/attachments": attachments}
        for plugin in network.plugins:
            stdin = json.dumps({**plugin, "name": network.name, "cniVersion": network.newest, **listed}).encode()
            no_sandbox = dict.fromkeys(("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"), "")
            environment = _ENVIRONMENT | no_sandbox | {"CNI_COMMAND": "GC", "CNI_PATH": str(self._plugins)}
            invocation = self.invoke("GC", plugin["type"], environment, stdin)
            invocations.append(invocation)
            if invocation.status != 0:
                raise CniFailed(invocation)
        return tuple(invocations)

    def invoke(
        self,
        command: str,
        plugin: str,
        env: Mapping[str, str],
        stdin: bytes,
        seconds: float = 120,
        started: Started = _ignore,
    ) -> Invocation:
        """Execute a plugin with exactly this environment and stdin, and return its result, also if it failed.

        Args:
            command: CNI_COMMAND, which only the returned `Invocation` shows.
            plugin: the plugin's name in the folder of plugins.
            env: the plugin's whole environment.
            stdin: the plugin's whole stdin.
            seconds: the time after which the plugin is killed.
            started: called with the process, which is the leader of a new session; it may kill or stop the process.

        Raises:
            subprocess.TimeoutExpired: the plugin was killed after `seconds`.
        """
        began = time.perf_counter()
        with subprocess.Popen(
            [*self.starter, str(self._plugins / plugin)],
            env=dict(env),
            cwd="/",
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                started(process)
                stdout, stderr = process.communicate(stdin, seconds)
            except BaseException:
                process.kill()
                raise
        took = (time.perf_counter() - began) * 1000
        return Invocation(plugin, command, env, stdin, stdout, stderr, process.returncode, took)

    def _cache_path(self, network: NetworkList, sandbox: Sandbox, ifname: str) -> Path:
        return self._results / f"{network.name}-{sandbox.container_id}-{ifname}"

    def _cache(self, network: NetworkList, sandbox: Sandbox, ifname: str, result: bytes) -> None:
        self._results.mkdir(parents=True, exist_ok=True)
        document = {
            "kind": "cniCacheV1",
            "containerId": sandbox.container_id,
            "config": base64.b64encode(network.raw).decode(),
            "ifName": ifname,
            "networkName": network.name,
            "cniArgs": list(_arguments(sandbox).items()),
            "capabilityArgs": dict(sandbox.capability_args),
            "result": json.loads(result),
        }
        self._cache_path(network, sandbox, ifname).write_text(json.dumps(document))

    def _network_of(self, sandbox: Sandbox, ifname: str) -> NetworkList | None:
        """Return the configuration of a sandbox's ADD; None if the runtime does not remember it."""
        paths = self._results.glob(f"*-{sandbox.container_id}-{ifname}") if self.remembers else ()
        configurations = [base64.b64decode(json.loads(path.read_bytes())["config"]) for path in paths]
        return cni_config.parse_list(configurations[0]) if configurations else None

    def _cached(self, network: NetworkList, sandbox: Sandbox, ifname: str) -> bytes | None:
        if not network.caches_results:
            return None
        cached = _read_cached(self._cache_path(network, sandbox, ifname))
        return None if cached is None else json.dumps(cached["result"]).encode()


def _read_cached(path: Path) -> dict[str, Any] | None:
    """Read a cached result; return None if there is none, as after another DEL, or if an ADD has not written all of it."""
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return document


def _remembered(path: Path) -> Sandbox | None:
    """Return the sandbox of a cached result, with its capability arguments; None if the result cannot be read.

    The DEL that libcni's GC runs needs both (containernetworking/cni, libcni/api.go, GCNetworkList).
    """
    document = _read_cached(path)
    if document is None:
        return None
    arguments = dict(document["cniArgs"])
    namespace, name, uid = (arguments[f"K8S_POD_{key}"] for key in ("NAMESPACE", "NAME", "UID"))
    return Sandbox(document["containerId"], _NO_NAMESPACE, namespace, name, uid, document["capabilityArgs"])


def _arguments(sandbox: Sandbox) -> dict[str, str]:
    """Return the pairs of CNI_ARGS."""
    return {
        "IgnoreUnknown": "1",
        "K8S_POD_NAMESPACE": sandbox.namespace,
        "K8S_POD_NAME": sandbox.pod,
        "K8S_POD_INFRA_CONTAINER_ID": sandbox.container_id,
        "K8S_POD_UID": sandbox.uid,
    }


def supported(plugin: Path) -> Mapping[str, Any]:
    """Return a plugin's answer to VERSION."""
    env = {**_ENVIRONMENT, "CNI_COMMAND": "VERSION", "CNI_PATH": os.fspath(plugin.parent)}
    done = subprocess.run([plugin], input=b'{"cniVersion":"1.0.0"}', env=env, capture_output=True, check=True)
    answer: Mapping[str, Any] = json.loads(done.stdout)
    return answer
