"""An informer of a kind that not every cluster has: it asks once where the kind is not served, and watches from the moment at which it is needed."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from railnet.apiserver.client import StreamingApiServer
from railnet.apiserver.request import Collection, Request
from railnet.controllers import informer_where_served
from railnet.controllers.informer import Informer
from railnet.controllers.informer_where_served import InformerWhereServed
from tests.railnet.controllers.cluster_in_memory import Cluster, Refusal
from tests.waiting import until

SECONDS = 20.0
SLICES = Collection("resource.k8s.io/v1", "resourceslices")
CLAIMS = Collection("resource.k8s.io/v1", "resourceclaims")
SLICE = "/apis/resource.k8s.io/v1/resourceslices/a"
CLAIM = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/c"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer_where_served, "_LOOK_SECONDS", 0.01)


@contextmanager
def running(*informers: Informer[Any]) -> Iterator[None]:
    ended = threading.Event()
    threads = [threading.Thread(target=informer.run, args=(ended,)) for informer in informers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive()


def both(
    cluster: Cluster, listed: Callable[[], None] = lambda: None
) -> tuple[InformerWhereServed[str], InformerWhereServed[str]]:
    api = StreamingApiServer(cluster, lambda: "a-token", "test")

    def name(document: dict[str, Any]) -> str:
        return str(document["metadata"]["name"])

    slices = InformerWhereServed(api, SLICES, name, lambda *_: None)
    return slices, InformerWhereServed(api, CLAIMS, name, lambda *_: None, listed, beside=slices)


def test_kind_that_is_not_served_is_asked_for_once_and_keeps_nothing_waiting() -> None:
    cluster = Cluster()

    def interfere(request: Request) -> None:
        if request.about.path.startswith("/apis/resource.k8s.io"):
            raise Refusal(404, "the server could not find the requested resource")

    cluster.interfere = interfere
    slices, claims = both(cluster)
    with running(slices, claims):
        until(lambda: slices.listed.is_set() and claims.listed.is_set(), SECONDS, "both to keep nothing waiting")
        assert (slices.trouble, claims.trouble) == ("", "")
    assert cluster.requests == {"list resourceslices": 1}


def test_kind_that_is_served_later_is_watched_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer_where_served, "_ASK_AGAIN_SECONDS", 0.01)
    cluster, absent = Cluster(), [404] * 3

    def interfere(request: Request) -> None:
        if absent:
            raise Refusal(absent.pop(), "the server could not find the requested resource")

    cluster.interfere = interfere
    cluster.put(SLICE, {"metadata": {"name": "a"}})
    slices, _ = both(cluster)
    with running(slices):
        until(lambda: slices.all() == ["a"], SECONDS, "the slice to be known")


def test_claims_are_not_read_before_there_is_a_slice_and_are_listed_then() -> None:
    cluster, listed = Cluster(), threading.Event()
    cluster.put(CLAIM, {"metadata": {"namespace": "ml", "name": "c"}})
    slices, claims = both(cluster, listed.set)
    with running(slices, claims):
        until(lambda: slices.listed.is_set() and claims.listed.is_set(), SECONDS, "both to keep nothing waiting")
        assert not listed.is_set()
        assert not [request for request in cluster.requests if request.endswith("resourceclaims")]
        cluster.put(SLICE, {"metadata": {"name": "a"}})
        until(lambda: claims.all() == ["c"], SECONDS, "the claim to be known")
        until(listed.is_set, SECONDS, "the claims to be listed")


def test_refusal_of_a_kind_that_is_served_is_a_trouble() -> None:
    cluster = Cluster()
    cluster.interfere = _forbid
    slices, _ = both(cluster)
    with running(slices):
        until(lambda: "forbidden" in slices.trouble, SECONDS, "the trouble")
        assert not slices.listed.is_set()


def _forbid(_: Request) -> None:
    raise Refusal(403, "forbidden")
