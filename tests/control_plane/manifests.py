"""The chart, applied by one command; nothing of it runs on a node, but for the daemons where a test wants them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.chart import Values, render
from tests.control_plane.api import JsonObject
from tests.control_plane.server import ApiServer


@contextmanager
def applied(server: ApiServer, values: Values, *, daemons: bool = False) -> Iterator[None]:
    """Have what the chart renders with these values, in the block: its accounts, rights, policies and webhooks.

    The test runs the programs of the Deployments itself, as processes. With `daemons` there are the pods of the DaemonSet.
    """
    objects = render(values)
    done = server.kubectl("apply", "--filename=-", "--validate=strict", stdin=as_list(objects))
    assert done.returncode == 0, done.stderr
    try:
        delete(
            server,
            [one for one in objects if one["kind"] == "Deployment" or (one["kind"] == "DaemonSet" and not daemons)],
        )
        yield
    finally:
        delete(server, objects)


def delete(server: ApiServer, objects: list[JsonObject]) -> None:
    """Delete objects, of which some may be gone already; return when the API server has forgotten all of them."""
    done = server.kubectl("delete", "--filename=-", "--ignore-not-found", stdin=as_list(objects))
    assert done.returncode == 0, done.stderr


def as_list(objects: list[JsonObject]) -> str:
    """Return objects as kubectl reads them from its standard input."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
