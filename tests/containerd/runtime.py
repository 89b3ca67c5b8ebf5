"""containerd 2 with runc, used as kubelet uses it: by CRI v1 on its socket."""

import json
import resource
import subprocess
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from simnode.kubernetes.kubelet import PodIdentity
from tests.cluster import busybox
from tests.cluster.process import Program, until_found, wait_until

_RUN = Path("/run/containerd-2")
SOCKET = _RUN / "containerd.sock"
_START_SECONDS = 120.0
_EXITED = 2  # ContainerState.CONTAINER_EXITED
_CALL_SECONDS = 240.0  # as kubelet gives RunPodSandbox
# restrict_oom_score_adj: without it and without CAP_SYS_RESOURCE, runc fails because it may not lower the score.
_TOML = f"""\
version = 3
root = "{_RUN}/root"
state = "{_RUN}/state"

[grpc]
address = "{SOCKET}"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{busybox.NAME}"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
"""
_CNI_TOML = """
[plugins."io.containerd.cri.v1.runtime".cni]
conf_dir = "{}"
bin_dirs = ["{}"]
"""
_messages, _services = grpc.protos_and_services("tests/containerd/cri.proto")


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A pod's sandbox."""

    pod: PodIdentity
    container_id: str
    ip: str
    netns: Path


class Containerd:
    """The runtime. Its shims outlive it, and so do the sandboxes."""

    def __init__(self) -> None:
        self._program = Program(["containerd", f"--config={_RUN}/containerd.toml"])
        self._cni = ""
        self._channel: grpc.Channel
        self._cri: Any

    def start(self) -> None:
        """Start containerd, and wait until it answers."""
        _RUN.mkdir(exist_ok=True)
        (_RUN / "containerd.toml").write_text(_TOML + self._cni)
        self._program.start()
        self._channel = grpc.insecure_channel(f"unix:{SOCKET}")
        self._cri = _services.RuntimeServiceStub(self._channel)
        self._program.wait(self._answers, _START_SECONDS)

    def stop(self) -> None:
        self._channel.close()
        self._program.stop()

    def restart(self) -> None:
        self.stop()
        self.start()

    def look_in(self, folders: tuple[Path, Path] | None) -> None:
        """Restart with these folders of CNI configurations and plugins; None for its defaults."""
        self._cni = _CNI_TOML.format(*folders) if folders is not None else ""
        self.restart()

    def limit_locked_memory(self, size: int) -> None:
        """Lower the limit of the runtime's process, which its containers inherit, for as long as the process lives."""
        assert self._program.process is not None
        resource.prlimit(self._program.process.pid, resource.RLIMIT_MEMLOCK, (size, size))

    def load_image(self) -> None:
        """Import the image of the sandboxes' pause container."""
        busybox.write(_RUN / "busybox.tar")
        command = ["ctr", f"--address={SOCKET}", "--namespace=k8s.io", "images", "import", f"{_RUN}/busybox.tar"]
        subprocess.run(command, check=True, capture_output=True, timeout=_CALL_SECONDS)

    def version(self) -> str:
        answer = self._cri.Version(_messages.VersionRequest(), timeout=_CALL_SECONDS)
        return f"{answer.runtime_name} {answer.runtime_version}"

    def run(
        self, pod: PodIdentity, annotations: Mapping[str, str] | None = None, host_ports: Iterable[int] = ()
    ) -> Sandbox:
        """Create a pod's sandbox. Each host port leads to the pod's port 80.

        Raises:
            grpc.RpcError: the runtime failed; the error has its reason.
        """
        config = _messages.PodSandboxConfig(
            metadata=_messages.PodSandboxMetadata(name=pod.name, uid=pod.uid, namespace=pod.namespace),
            hostname=pod.name,
            annotations=annotations or {},
            port_mappings=[_messages.PortMapping(host_port=port, container_port=80) for port in host_ports],
        )
        answer = self._cri.RunPodSandbox(_messages.RunPodSandboxRequest(config=config), timeout=_CALL_SECONDS)
        asked = _messages.PodSandboxStatusRequest(pod_sandbox_id=answer.pod_sandbox_id, verbose=True)
        status = self._cri.PodSandboxStatus(asked, timeout=_CALL_SECONDS)
        namespaces = json.loads(status.info["info"])["runtimeSpec"]["linux"]["namespaces"]
        (netns,) = (namespace["path"] for namespace in namespaces if namespace["type"] == "network")
        return Sandbox(pod, answer.pod_sandbox_id, status.status.network.ip, Path(netns))

    def remove(self, sandbox: Sandbox) -> None:
        """Stop and remove a sandbox.

        Raises:
            grpc.RpcError: the runtime failed, and still has the sandbox.
        """
        request = _messages.PodSandboxRequest(pod_sandbox_id=sandbox.container_id)
        self._cri.StopPodSandbox(request, timeout=_CALL_SECONDS)
        self._cri.RemovePodSandbox(request, timeout=_CALL_SECONDS)

    def exit_code(
        self, sandbox: Sandbox, command: Sequence[str], devices: Iterable[str], user: int, mounts: Iterable[str]
    ) -> int:
        """Run a program in a container of a sandbox, until it ends; devices and folders of the host have the same paths there.

        Raises:
            grpc.RpcError: the runtime failed; the error has its reason.
        """
        pod = sandbox.pod
        config = _messages.ContainerConfig(
            metadata=_messages.ContainerMetadata(name=uuid.uuid4().hex),
            image=_messages.ImageSpec(image=busybox.NAME),
            command=command,
            mounts=[_messages.Mount(container_path=path, host_path=path, readonly=True) for path in mounts],
            devices=[_messages.Device(container_path=path, host_path=path, permissions="rw") for path in devices],
            linux=_messages.LinuxContainerConfig(
                security_context=_messages.LinuxContainerSecurityContext(run_as_user=_messages.Int64Value(value=user))
            ),
        )
        of_pod = _messages.PodSandboxConfig(
            metadata=_messages.PodSandboxMetadata(name=pod.name, uid=pod.uid, namespace=pod.namespace)
        )
        request = _messages.CreateContainerRequest(
            pod_sandbox_id=sandbox.container_id, config=config, sandbox_config=of_pod
        )
        container = self._cri.CreateContainer(request, timeout=_CALL_SECONDS).container_id
        self._cri.StartContainer(_messages.StartContainerRequest(container_id=container), timeout=_CALL_SECONDS)
        asked = _messages.ContainerStatusRequest(container_id=container)

        def ended() -> list[int]:
            status = self._cri.ContainerStatus(asked, timeout=_CALL_SECONDS).status
            return [status.exit_code] if status.state == _EXITED else []

        return until_found(ended, _CALL_SECONDS, f"the container of {pod.name} to end")[0]

    def why_not_ready(self) -> str | None:
        """Return the runtime's reason why the network is not ready; None if it is ready. Kubelet reports it in the node's status."""
        answer = self._cri.Status(_messages.StatusRequest(), timeout=_CALL_SECONDS)
        (network,) = (one for one in answer.status.conditions if one.type == "NetworkReady")
        return None if network.status else str(network.message)

    def network(self) -> tuple[str, str]:
        """Return name and CNI version of the pods' network, as the runtime has read them; empty while it reads a folder without one."""
        answer = self._cri.Status(_messages.StatusRequest(verbose=True), timeout=_CALL_SECONDS)
        networks = json.loads(answer.info["cniconfig"])["Networks"]
        found = [one["Config"] for one in networks if one["IFName"] == "eth0"]
        return (found[0]["Name"], found[0]["CNIVersion"]) if found else ("", "")

    def wait_for_network(self, name: str) -> None:
        """Wait until the runtime has read a network's configuration. It watches the folder."""
        wait_until(lambda: self.network()[0] == name, _START_SECONDS, f"containerd to read network {name}")

    def _answers(self) -> bool:
        try:
            self.version()
        except grpc.RpcError:
            return False
        return True
