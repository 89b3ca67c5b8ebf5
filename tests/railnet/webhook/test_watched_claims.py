"""How many VFs pods ask for by claims: those that users write, and templates; nothing while they are not known, or are not served."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from railnet.apiserver.client import StreamingApiServer
from railnet.apiserver.request import Request
from railnet.controllers import informer_where_served
from railnet.errors import NotReady
from railnet.objects.pod import NamedClaim, Pod
from railnet.webhook.watched_claims import WatchedClaims
from tests.railnet.controllers.cluster_in_memory import Cluster, Refusal
from tests.railnet.gangs.slices_and_claims import VF, a_claim
from tests.waiting import until

SECONDS = 20.0
PATH = "/apis/resource.k8s.io/v1/namespaces/ml"
JsonObject = dict[str, Any]


def watched(cluster: Cluster | None = None) -> WatchedClaims:
    return WatchedClaims(StreamingApiServer(cluster or Cluster(), lambda: "a-token", "test"), (VF,))


@contextmanager
def watching(cluster: Cluster) -> Iterator[WatchedClaims]:
    """Watch in the block, when everything is listed."""
    claims, ended = watched(cluster), threading.Event()
    threads = [threading.Thread(target=informer.run, args=(ended,)) for informer in claims.informers.values()]
    for thread in threads:
        thread.start()
    try:
        until(lambda: all(one.listed.is_set() for one in claims.informers.values()), SECONDS, "the lists")
        yield claims
    finally:
        ended.set()
        for thread in threads:
            thread.join(SECONDS)


def a_pod(*claims: NamedClaim) -> Pod:
    return Pod("train-0", "ml", {}, {}, (), claims=claims)


def a_template(name: str, count: int, device_class: str = "rdma.railnet.io") -> JsonObject:
    return {"metadata": {"namespace": "ml", "name": name}, "spec": {"spec": a_claim(name, count, device_class)["spec"]}}


CLAIM, TEMPLATE = NamedClaim("c", ""), NamedClaim("", "t")
OWNER = [{"apiVersion": "v1", "kind": "Pod", "name": "train-0", "uid": "u", "controller": True}]


@pytest.mark.parametrize(
    ("objects", "claims", "vfs"),
    [
        ({"resourceclaims/c": a_claim("c", 2)}, [CLAIM], 2),
        ({"resourceclaimtemplates/t": a_template("t", 4)}, [TEMPLATE], 4),
        ({"resourceclaimtemplates/t": a_template("t", 4, "rdma-ib-vf")}, [TEMPLATE], 4),
        ({"resourceclaims/c": a_claim("c", 2), "resourceclaimtemplates/t": a_template("t", 4)}, [CLAIM, TEMPLATE], 6),
        ({"resourceclaimtemplates/t": a_template("t", 1, "gpu.example.com")}, [TEMPLATE], 0),
        ({}, [CLAIM, TEMPLATE], 0),
        ({"resourceclaims/t": a_claim("t", 2)}, [TEMPLATE], 0),
    ],
    ids=["claim", "template", "by resource", "both", "of another driver", "not there", "of the other kind"],
)
def test_claims_of_a_pod_ask_for_vfs(objects: Mapping[str, JsonObject], claims: list[NamedClaim], vfs: int) -> None:
    cluster = Cluster()
    for name, found in objects.items():
        cluster.put(f"{PATH}/{name}", found)
    with watching(cluster) as known:
        assert known.vfs(a_pod(*claims)) == vfs
        assert known.vfs(a_pod(*claims)._replace(namespace="other")) == 0


def test_claim_that_kubernetes_made_for_a_pod_is_not_kept() -> None:
    cluster, made = Cluster(), a_claim("c", 2)
    made["metadata"]["ownerReferences"] = OWNER
    cluster.put(f"{PATH}/resourceclaims/c", made)
    with watching(cluster) as known:
        assert known.informers["resourceclaims"].all() == []


def test_pod_with_claims_waits_until_they_are_known_and_one_without_does_not() -> None:
    with pytest.raises(NotReady, match="what the pod's claims ask for"):
        watched().vfs(a_pod(TEMPLATE))
    assert watched().vfs(a_pod()) == 0


def test_api_server_without_claims_keeps_no_pod_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer_where_served, "_ASK_AGAIN_SECONDS", 0.01)
    cluster = Cluster()

    def interfere(request: Request) -> None:
        raise Refusal(404, f"{request.about} is not served")

    cluster.interfere = interfere
    with watching(cluster) as known:
        assert known.vfs(a_pod(TEMPLATE)) == 0
