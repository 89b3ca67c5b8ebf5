"""What makes a DaemonSet of Railnet's uninstall it: the patch of daemonset/uninstall-patch.yaml, computed from the DaemonSet as it is. Pure.

The patch has only the steps that are still missing, so a command that was ended early can be run again.
"""

from collections.abc import Iterator
from typing import Any

from railnet.apiserver.request import JsonObject
from railnet.errors import Misconfigured

_ARGUMENTS = ["uninstall", "--stay"]
_CONTAINER, _INSTALLER = "railnet", "install"
_APPARMOR = (
    f"container.apparmor.security.beta.kubernetes.io/{_INSTALLER}"  # an annotation of the pods, before Kubernetes 1.30
)
_ALL_AT_ONCE = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}}
_TEMPLATE = "/spec/template"


def steps(daemon_set: JsonObject) -> list[JsonObject]:
    """Return the JSON patch that puts a DaemonSet into the mode; empty if it is in the mode.

    The patch tests the names of the containers that it changes.

    Raises:
        Misconfigured: the DaemonSet has no container of the daemon.
    """
    template = daemon_set["spec"]["template"]
    return [
        *_strategy(daemon_set["spec"].get("updateStrategy") or {}),
        *_without_annotation(template.get("metadata") or {}),
        *_without_installer(template["spec"].get("initContainers") or []),
        *_arguments(daemon_set["metadata"]["name"], template["spec"].get("containers") or []),
    ]


def uninstalls(pod: JsonObject) -> bool:
    """Return whether a pod was made from a DaemonSet in the mode."""
    return any(
        container["name"] == _CONTAINER and container.get("args") == _ARGUMENTS
        for container in pod["spec"].get("containers") or ()
    )


def _strategy(strategy: JsonObject) -> Iterator[JsonObject]:
    rolling = strategy.get("rollingUpdate") or {}
    at_once = strategy.get("type") == "RollingUpdate" and rolling.get("maxUnavailable") == "100%"
    # The API server writes `maxSurge: 0` itself, and refuses another one beside `maxUnavailable`.
    if not at_once or rolling.get("maxSurge") not in (None, 0, "0%"):
        yield {"op": "add", "path": "/spec/updateStrategy", "value": _ALL_AT_ONCE}


def _without_annotation(metadata: JsonObject) -> Iterator[JsonObject]:
    if _APPARMOR in (metadata.get("annotations") or {}):
        yield {"op": "remove", "path": f"{_TEMPLATE}/metadata/annotations/{_APPARMOR.replace('/', '~1')}"}


def _without_installer(containers: list[Any]) -> Iterator[JsonObject]:
    position = _position(containers, _INSTALLER)
    if position is not None:
        path = f"{_TEMPLATE}/spec/initContainers"
        yield _test(path, position, _INSTALLER)
        yield {"op": "remove", "path": path if len(containers) == 1 else f"{path}/{position}"}


def _arguments(name: str, containers: list[Any]) -> Iterator[JsonObject]:
    position = _position(containers, _CONTAINER)
    if position is None:
        raise Misconfigured(
            f"DaemonSet {name} has Railnet's label and no container {_CONTAINER}: remove the label app.kubernetes.io/name from it, or "
            "uninstall its nodes as docs/install.md says"
        )
    if containers[position].get("args") != _ARGUMENTS:
        path = f"{_TEMPLATE}/spec/containers"
        yield _test(path, position, _CONTAINER)
        yield {"op": "add", "path": f"{path}/{position}/args", "value": _ARGUMENTS}


def _position(containers: list[Any], name: str) -> int | None:
    return next((position for position, container in enumerate(containers) if container["name"] == name), None)


def _test(path: str, position: int, name: str) -> JsonObject:
    return {"op": "test", "path": f"{path}/{position}/name", "value": name}
