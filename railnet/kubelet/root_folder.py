"""Kubelet's root folder (`--root-dir`) by the command line of its process, or by its socket. Pure.

Below the root are plugins_registry and pod-resources (pkg/kubelet/kubelet_getters.go, getPluginsRegistrationDir and
getPodResourcesDir). The folder of device plugins, which has the checkpoint, is a constant (staging/src/k8s.io/kubelet/pkg/apis/
deviceplugin/v1beta1/constants.go, DevicePluginPath; pkg/kubelet/cm/devicemanager/manager.go). KubeletConfiguration has no key for the
root: only the command line names it (cmd/kubelet/app/options/options.go).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

REGISTRY, POD_RESOURCES = "plugins_registry", "pod-resources/kubelet.sock"
DEFAULT = "/var/lib/kubelet"
_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")
_SOCKET = f"/{POD_RESOURCES}"
_FLAG, _ARGUMENTS_FILE, _PASSED_ON = "--root-dir", "--kubelet-args-file", "--kubelet-arg"


class KubeletFolder(NamedTuple):
    """Kubelet's root folder, a path of the host, and how it is known."""

    path: Path
    source: str

    def __str__(self) -> str:
        return f"{self.path} ({self.source})"


def root_folder(
    command: Sequence[str],
    environ: Mapping[str, str],
    read: Callable[[str], str],
    listening_paths: Callable[[], Iterable[str]] = tuple,
) -> str | None:
    """Return the root folder of the kubelet that this command runs; None if it runs none, or has not made its socket yet.

    kubeadm, k0s, RKE2, Talos and OpenShift run `kubelet`, MicroK8s `kubelite` with a file of kubelet's arguments, and K3s has kubelet in
    its own process, where it replaces all its arguments by a title (k3s-io/k3s, pkg/cli/server/server.go, proctitle.SetProcTitle). Then
    the socket of pod-resources tells.

    Args:
        command: the words of the command line.
        environ: the environment of the process.
        read: returns the text of a file, and may raise OSError: then the folder is not known.
        listening_paths: returns the paths of the sockets on which the process listens; it may raise OSError.
    """
    program, arguments = _program(command)
    match program:
        case "kubelet":
            return _last(arguments)
        case "kubelite":
            return _last(_of_file(arguments, environ, read))
        case "k3s" if arguments[:1] in (["server"], ["agent"]):
            return _last([f"--{value}" for value in _values(arguments, _PASSED_ON)])
        case "k3s server" | "k3s agent":
            return next((path[: -len(_SOCKET)] for path in listening_paths() if path.endswith(_SOCKET)), None)
        case _:
            return None


def runs_kubelet(command: Sequence[str]) -> bool:
    """Return whether this is the command line of a kubelet."""
    program, arguments = _program(command)
    return program in ("kubelet", "kubelite", "k3s server", "k3s agent") or (
        program == "k3s" and arguments[:1] in (["server"], ["agent"])
    )


def _program(command: Sequence[str]) -> tuple[str, list[str]]:
    """Return the name of a program, and its arguments; K3s' title is its name."""
    program, *arguments = [word for word in command if word] or [""]
    return program.rpartition("/")[2], arguments


def _last(arguments: Sequence[str]) -> str:
    """Return the value that wins: a flag may be given twice."""
    return [DEFAULT, *_values(arguments, _FLAG)][-1]


def _values(arguments: Sequence[str], flag: str) -> Iterator[str]:
    for position, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == flag:
            yield value if equals else next(iter(arguments[position + 1 : position + 2]), "")


def _of_file(arguments: Sequence[str], environ: Mapping[str, str], read: Callable[[str], str]) -> list[str]:
    path = [*_values(arguments, _ARGUMENTS_FILE)]
    if not path:
        return []
    expanded = _VARIABLE.sub(lambda match: environ.get(match[1], ""), read(path[-1]))
    import shlex  # noqa: PLC0415 - only MicroK8s' kubelet has such a file

    return shlex.split(expanded, comments=True)
