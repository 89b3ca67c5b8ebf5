"""The stand-in's list and watch, against a server that answers as an API server does: watches that end, break, or are too old."""

import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from tests import waiting
from tests.stand_ins.dns_server import ClusterView, watched
from tests.stand_ins.test_dns_records import endpoint, endpoints
from tests.stand_ins.watched_objects import Connections

_SECONDS = 60.0
_CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=server "
    "-addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}"
)
SERVICES, NAMESPACES = "/api/v1/services", "/api/v1/namespaces"
BOOKMARK = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "42"}}}
GROUP = "/apis/discovery.k8s.io"
SLICES = f"{GROUP}/v1beta1/endpointslices"


class Api:
    """Lists that a test sets, and watches that say what a test puts into their queue; None ends a watch.

    Attributes:
        requests: the paths so far.
        broken: whether each request fails.
        failures: how many did.
        versions: of EndpointSlices.
    """

    def __init__(self) -> None:
        self.lists: dict[str, list[dict[str, Any]]] = {SERVICES: [], SLICES: [], NAMESPACES: [named("ml")]}
        self.events: dict[str, SimpleQueue[dict[str, Any] | None]] = {path: SimpleQueue() for path in self.lists}
        self.requests: list[str] = []
        self.broken = False
        self.failures = 0
        self.versions = ["v1beta1"]

    def answer(self, path: str) -> Iterator[dict[str, Any]]:
        kind, _, watch = path.partition("?")
        self.requests.append(path)
        if kind == GROUP:
            yield {"versions": [{"version": version} for version in self.versions]}
        elif not watch:
            yield {"items": self.lists[kind], "metadata": {"resourceVersion": "7"}}
        else:
            while (event := self.events[kind].get()) is not None:
                yield event
                if event["type"] == "ERROR":
                    return  # an API server ends the watch after it

    def requested(self, part: str) -> list[str]:
        return [path for path in self.requests if part in path]


def named(name: str, version: str = "1", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ml", "resourceVersion": version}, "spec": spec}


def event(kind: str, changed: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": changed}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """A server whose kubeconfig is in the test's folder."""
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    subprocess.run(_CERTIFICATE.format(key=key, certificate=certificate).split(), check=True, capture_output=True)
    made = Api()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            failed = made.broken or self.headers["Authorization"] != "Bearer a-token"
            made.failures += failed
            self.send_response(500 if failed else 200)
            self.end_headers()
            for one in () if failed else made.answer(self.path):
                self.wfile.write(json.dumps(one).encode() + b"\n")
                self.wfile.flush()

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        server.socket = context.wrap_socket(server.socket, server_side=True)
        cluster = {"server": f"https://127.0.0.1:{server.server_address[1]}", "certificate-authority": str(certificate)}
        config = {"clusters": [{"cluster": cluster}], "users": [{"user": {"token": "a-token"}}]}
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield made
        made.broken = True
        for queue in made.events.values():
            queue.put(None)
        server.shutdown()
        thread.join()


@pytest.fixture
def view(api: Api, tmp_path: Path) -> Iterator[ClusterView]:
    objects = watched(Connections(tmp_path / "kubeconfig"))
    objects.start()
    yield ClusterView(objects)
    objects.stop()


def addresses(view: ClusterView, name: str) -> tuple[str, ...]:
    records = view.records()
    return () if records is None else records.answer(f"{name}.ml.svc.cluster.local", 4).addresses


def wait_for(view: ClusterView, name: str, *expected: str) -> None:
    waiting.until(lambda: addresses(view, name) == expected, _SECONDS, f"{name} to have the addresses {expected}")


def test_records_follow_the_events_of_a_watch(api: Api, view: ClusterView) -> None:
    waiting.until(lambda: view.records() is not None, _SECONDS, "the first lists")
    api.events[SERVICES].put(event("ADDED", named("api", "8", clusterIP="10.96.0.7")))
    wait_for(view, "api", "10.96.0.7")
    api.events[SERVICES].put(event("MODIFIED", named("api", "9", clusterIP="10.96.0.8")))
    wait_for(view, "api", "10.96.0.8")
    api.events[SERVICES].put(BOOKMARK)
    api.events[SERVICES].put(event("DELETED", named("api", "43")))
    wait_for(view, "api")


@pytest.mark.parametrize(("served", "listed"), [(["v1beta1"], "v1beta1"), (["v1", "v1beta1"], "v1"), (["v1"], "v1")])
def test_newest_version_of_endpointslices_that_is_served_is_listed(
    api: Api, tmp_path: Path, served: list[str], listed: str
) -> None:
    api.versions = served
    path = f"{GROUP}/{listed}/endpointslices"
    api.lists[path] = [endpoints("net1", endpoint("10.56.0.1"))]
    api.events.setdefault(path, SimpleQueue())
    api.lists[SERVICES] = [named("net1", clusterIP="None")]
    objects = watched(Connections(tmp_path / "kubeconfig"))
    objects.start()
    wait_for(ClusterView(objects), "net1", "10.56.0.1")
    objects.stop()


def test_watch_that_ends_goes_on_at_its_last_version(api: Api, view: ClusterView) -> None:
    api.events[SERVICES].put(BOOKMARK)
    api.events[SERVICES].put(None)
    waiting.until(lambda: len(api.requested(f"{SERVICES}?")) == 2, _SECONDS, "the second watch")

    assert api.requested(f"{SERVICES}?")[1].endswith("&resourceVersion=42")
    assert api.requests.count(SERVICES) == 1


def test_watch_that_is_too_old_is_begun_again_with_a_list(api: Api, view: ClusterView) -> None:
    waiting.until(lambda: view.records() is not None, _SECONDS, "the first lists")
    api.lists[SERVICES] = [named("api", clusterIP="10.96.0.7")]
    api.events[SERVICES].put(event("ERROR", {"code": 410, "message": "too old resource version"}))

    wait_for(view, "api", "10.96.0.7")


def test_names_stay_while_the_api_server_fails(api: Api, view: ClusterView) -> None:
    api.lists[SERVICES] = [named("api", clusterIP="10.96.0.7")]
    api.events[SERVICES].put(event("ERROR", {"code": 410}))
    wait_for(view, "api", "10.96.0.7")
    api.broken = True
    api.events[SERVICES].put(None)
    waiting.until(lambda: api.failures > 1, _SECONDS, "requests that fail")

    assert addresses(view, "api") == ("10.96.0.7",)
    api.broken = False
    api.lists[SERVICES] = [named("api", clusterIP="10.96.0.9")]
    wait_for(view, "api", "10.96.0.9")
