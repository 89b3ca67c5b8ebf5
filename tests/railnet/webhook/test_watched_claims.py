"""How many VFs pods ask for by claims: those that users write, and templates. A name that is not known is no answer."""

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


@pytest.mark.parametrize(
    ("objects", "claims", "vfs"),
    [
        ({"resourceclaims/c": a_claim("c", 2)}, [CLAIM], 2),
        ({"resourceclaimtemplates/t": a_template("t", 4)}, [TEMPLATE], 4),
        ({"resourceclaimtemplates/t": a_template("t", 4, "rdma-ib-vf")}, [TEMPLATE], 4),
        ({"resourceclaims/c": a_claim("c", 2), "resourceclaimtemplates/t": a_template("t", 4)}, [CLAIM, TEMPLATE], 6),
        ({"resourceclaimtemplates/t": a_template("t", 1, "gpu.example.com")}, [TEMPLATE], 0),
        ({"resourceclaims/c": a_claim("c", 1, "gpu.example.com")}, [CLAIM], 0),
        ({}, [NamedClaim("", "")], 0),
    ],
    ids=["claim", "template", "by resource", "both", "of another driver", "claim of another driver", "names none"],
)
def test_claims_of_a_pod_ask_for_vfs(objects: Mapping[str, JsonObject], claims: list[NamedClaim], vfs: int) -> None:
    cluster = Cluster()
    for name, found in objects.items():
        cluster.put(f"{PATH}/{name}", found)
    with watching(cluster) as known:
        assert known.vfs(a_pod(*claims)) == vfs


@pytest.mark.parametrize(
    ("objects", "named", "namespace", "words"),
    [
        ({}, CLAIM, "ml", "ResourceClaim c of namespace ml does not exist, or was not reported"),
        ({}, TEMPLATE, "ml", "ResourceClaimTemplate t of namespace ml does not exist, or was not reported"),
        ({"resourceclaims/t": a_claim("t", 2)}, TEMPLATE, "ml", "ResourceClaimTemplate t of namespace ml"),
        ({"resourceclaims/c": a_claim("c", 2)}, CLAIM, "other", "ResourceClaim c of namespace other"),
    ],
    ids=["no claim", "no template", "of the other kind", "in another namespace"],
)
def test_pod_that_names_what_is_not_known_is_refused_until_it_is(
    objects: Mapping[str, JsonObject], named: NamedClaim, namespace: str, words: str
) -> None:
    cluster = Cluster()
    for name, found in objects.items():
        cluster.put(f"{PATH}/{name}", found)
    with watching(cluster) as known:
        with pytest.raises(NotReady, match=f"{words}.*; create it if it does not exist, then try again"):
            known.vfs(a_pod(named)._replace(namespace=namespace))
        here = f"/apis/resource.k8s.io/v1/namespaces/{namespace}"
        asked = a_template("t", 4) if named.template else a_claim("c", 4)
        asked["metadata"]["namespace"] = namespace
        cluster.put(f"{here}/resourceclaimtemplates/t" if named.template else f"{here}/resourceclaims/c", asked)
        until(lambda: known.informers[_resource(named)].get(namespace, named.claim or named.template), SECONDS, "it")
        assert known.vfs(a_pod(named)._replace(namespace=namespace)) == 4


def _resource(named: NamedClaim) -> str:
    return "resourceclaims" if named.claim else "resourceclaimtemplates"


def test_new_template_is_not_known_while_the_watch_is_broken() -> None:
    cluster = Cluster()
    cluster.put(f"{PATH}/resourceclaimtemplates/t", a_template("t", 4))
    with watching(cluster) as known:

        def interfere(request: Request) -> None:
            raise Refusal(503, "it is ill")

        cluster.interfere = interfere
        until(lambda: known.informers["resourceclaimtemplates"].trouble, SECONDS, "the trouble")
        with pytest.raises(NotReady, match=r"was not reported to Railnet yet \(.* are not up to date: .*it is ill"):
            known.vfs(a_pod(NamedClaim("", "new")))
        assert known.vfs(a_pod(TEMPLATE)) == 4  # what a template asks for does not change


@pytest.mark.parametrize(
    ("api_version", "owner", "kept"),
    [
        ("v1", "Pod", []),
        ("batch/v1", "Job", [2]),
        ("example.com/v1", "Workspace", [2]),
        ("example.com/v1", "Pod", [2]),
    ],
    ids=["pod", "job", "another", "another's pod"],
)
def test_only_claims_that_kubernetes_made_for_pods_are_not_kept(api_version: str, owner: str, kept: list[int]) -> None:
    cluster, made = Cluster(), a_claim("c", 2)
    reference = {"apiVersion": api_version, "kind": owner, "name": "train-0", "uid": "u", "controller": True}
    made["metadata"]["ownerReferences"] = [reference]
    cluster.put(f"{PATH}/resourceclaims/c", made)
    with watching(cluster) as known:
        assert known.informers["resourceclaims"].all() == kept


def test_pod_with_claims_waits_until_they_are_known_and_one_without_does_not() -> None:
    with pytest.raises(NotReady, match="what the pod's claims ask for"):
        watched().vfs(a_pod(TEMPLATE))
    assert watched().vfs(a_pod()) == 0


@pytest.mark.parametrize("status", [403, 500])
def test_reasons_say_why_the_lists_are_not_done(status: int) -> None:
    cluster = Cluster()

    def interfere(request: Request) -> None:
        if request.about.resource == "resourceclaimtemplates":
            raise Refusal(status, "you may not list them")

    cluster.interfere = interfere
    claims, ended = watched(cluster), threading.Event()
    assert len(claims.reasons()) == 2
    threads = [threading.Thread(target=informer.run, args=(ended,)) for informer in claims.informers.values()]
    for thread in threads:
        thread.start()
    try:
        until(lambda: "you may not list them" in "".join(claims.reasons()), SECONDS, "the refusal")
        until(lambda: len(claims.reasons()) == 1, SECONDS, "the other list")
        cluster.interfere = lambda request: None
        until(lambda: claims.reasons() == [], SECONDS, "both lists")
    finally:
        ended.set()
        for thread in threads:
            thread.join(SECONDS)


def test_api_server_without_claims_keeps_no_pod_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer_where_served, "_ASK_AGAIN_SECONDS", 0.01)
    cluster = Cluster()

    def interfere(request: Request) -> None:
        raise Refusal(404, f"{request.about} is not served")

    cluster.interfere = interfere
    with watching(cluster) as known:
        assert known.vfs(a_pod(TEMPLATE)) == 0
        cluster.interfere = lambda request: None
        until(lambda: not known.informers["resourceclaimtemplates"].absent, SECONDS, "the API server to be upgraded")
        with pytest.raises(NotReady, match="does not exist"):
            known.vfs(a_pod(TEMPLATE))
