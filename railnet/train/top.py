"""`railnet train top`: the cluster's resources against the jobs that request them."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from http import HTTPStatus

from railnet.apiserver import rail_reach
from railnet.apiserver.client import RequestFailed, StreamingApiServer
from railnet.apiserver.object_watch import pages
from railnet.apiserver.request import Collection
from railnet.cli.output import Output
from railnet.fabric.published_reach import UNPUBLISHED
from railnet.jobs.cluster_usage import NodeRoom, PodUse, Usage, node_room, pod_use, usage
from railnet.jobs.gang.overview import REFUSED, WAITING, GangWait, gang_wait
from railnet.train.failure import TrainFailed
from railnet.train.job_lookup import PODS, everything
from railnet.train.screen import Screen
from railnet.train.usage_table import as_json, rendered
from railnet.train.watched_objects import Keep, LiveObjects
from railnet.train.watched_reach import WatchedReach

_NODES = "nodes"
_EVENTS = "events"
_REASONS = (WAITING, REFUSED)  # a field selector has one of them
_REDRAW_SECONDS = 1.0
_LOOK_SECONDS = 1.0


class NotAllowed(TrainFailed):
    """The user may not look at all pods; the message says what is possible."""


def top(api: StreamingApiServer, namespace: str | None, rails: frozenset[str], output: Output) -> None:
    """Print the view once: of all namespaces, or the jobs of one.

    Raises:
        NotAllowed: the user may not list what the view needs.
        RequestFailed: the API server does not answer.
    """
    cluster_usage = look(api, namespace, rails)
    nodes = namespace is None
    output.show(as_json(cluster_usage, nodes=nodes), rendered(cluster_usage, nodes=nodes, wide=output.wide))


def watch(api: StreamingApiServer, namespace: str | None, rails: frozenset[str], output: Output) -> None:
    """Print the view, and print it again when something has changed, at most once a second, until Ctrl-C.

    Raises:
        NotAllowed: as `top`.
    """
    look(api, namespace, rails)  # raises what a watch would only wait for
    told = _waits(api, namespace) is not None
    reach = WatchedReach(api)
    collections: dict[str, tuple[Collection, Keep]] = {
        PODS: (everything(PODS, namespace), partial(pod_use, rails=rails)),
        **({} if namespace else {_NODES: (everything(_NODES), partial(node_room, rails=rails))}),
        **({reason: (_about_waits(namespace, reason), gang_wait) for reason in _REASONS} if told else {}),
    }
    screen, printed = Screen(sys.stdout), ""
    with LiveObjects(api, collections) as live:
        while True:
            if not ((live.wait(_LOOK_SECONDS) or reach.has_changed) and live.listed):
                continue
            nodes = live.of(_NODES) if namespace is None else ()
            waits = [wait for reason in _REASONS for wait in live.of(reason)] if told else ()
            cluster_usage = usage(nodes, live.of(PODS), waits, reach.latest())
            if output.for_programs:
                text = output.text_of_series(as_json(cluster_usage, nodes=namespace is None))
                if text != printed:  # a change need not be one of what is shown
                    print(text, end="", flush=True)
                printed = text
            else:
                lines = rendered(cluster_usage, nodes=namespace is None, wide=output.wide)
                screen.show([*lines, *([live.trouble] if live.trouble else [])])
            live.rest(_REDRAW_SECONDS)


def look(api: StreamingApiServer, namespace: str | None, rails: frozenset[str]) -> Usage:
    """List nodes and pods, page by page: of each only a few numbers are kept.

    Raises:
        NotAllowed: the user may not list them.
    """
    try:
        pods = list(_pods(api, namespace, rails))
        waits = _waits(api, namespace) if any(pod.gang is not None and not pod.node for pod in pods) else ()
        reach = rail_reach.read(api) if any(pod.rails for pod in pods) else UNPUBLISHED
        return usage(_nodes(api, rails) if namespace is None else (), pods, waits or (), reach)
    except RequestFailed as error:
        if error.status == HTTPStatus.FORBIDDEN and namespace is None:
            raise NotAllowed(f"{error}; the pods of one namespace are shown by -n NAMESPACE") from None
        raise


def _nodes(api: StreamingApiServer, rails: frozenset[str]) -> Iterator[NodeRoom]:
    for page in pages(api, everything(_NODES)):
        yield from (node_room(node, rails) for node in page.found)


def _pods(api: StreamingApiServer, namespace: str | None, rails: frozenset[str]) -> Iterator[PodUse]:
    for page in pages(api, everything(PODS, namespace)):
        for pod in page.found:
            use = pod_use(pod, rails)
            if use is not None:
                yield use


def _waits(api: StreamingApiServer, namespace: str | None) -> Sequence[GangWait] | None:
    """Return what gangs wait for; None if the user may not list events, without which the view is shown all the same."""
    try:
        waits = [
            gang_wait(event)
            for reason in _REASONS
            for page in pages(api, _about_waits(namespace, reason))
            for event in page.found
        ]
    except RequestFailed as error:
        if error.status == HTTPStatus.FORBIDDEN:
            return None
        raise
    return [wait for wait in waits if wait is not None]


def _about_waits(namespace: str | None, reason: str) -> Collection:
    return everything(_EVENTS, namespace, f"reason={reason}")
