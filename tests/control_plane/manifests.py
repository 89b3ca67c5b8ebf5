"""Railnet's manifests, applied by one command; nothing of them runs on a node, but for the daemons where a test wants them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from tests.control_plane.api import JsonObject
from tests.control_plane.server import ApiServer

NAMESPACE = "railnet"
_STAYS = ("Namespace", "PriorityClass")


@contextmanager
def applied(server: ApiServer, folder: str, *, daemons: bool = False) -> Iterator[None]:
    """Have what a folder says, in the block: its accounts, rights, policies and webhooks.

    The test runs the programs of the Deployments itself, as processes. With `daemons` there are the pods of the DaemonSet.
    """
    done = server.kubectl("apply", "--kustomize", folder, "--validate=strict")
    assert done.returncode == 0, done.stderr
    objects = [
        one for one in yaml.safe_load_all(server.kubectl("kustomize", folder).stdout) if one["kind"] not in _STAYS
    ]
    try:
        _delete(
            server,
            [one for one in objects if one["kind"] == "Deployment" or (one["kind"] == "DaemonSet" and not daemons)],
        )
        yield
    finally:
        _delete(server, objects)


def _delete(server: ApiServer, objects: list[JsonObject]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    done = server.kubectl("delete", "--filename=-", "--ignore-not-found", stdin=text)
    assert done.returncode == 0, done.stderr
