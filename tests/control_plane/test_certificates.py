"""Replicas of `railnet admission` share one authority: by its Secret, and by the webhooks' caBundle."""

import base64
import ssl
import time
from collections.abc import Iterator

import pytest

from railnet.admission.certificates.cluster_objects import ROTATE, SECRET
from railnet.admission.webhook_scope import pods
from tests.cluster.chart import WEBHOOK
from tests.cluster.manifests import NAMESPACE
from tests.control_plane.cluster import Cluster
from tests.control_plane.replica import NAME
from tests.control_plane.server import ApiServer

_SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}"
_CONFIGURATION = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{NAME}"
_SECONDS = 90.0


@pytest.fixture(scope="module")
def cluster(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(server, WEBHOOK, tmp_path_factory.mktemp("replicas"), replicas=3) as found:
        yield found


def kept(cluster: Cluster, name: str) -> str:
    found: str = cluster.server.api.get(_SECRET).object["data"][name]
    return base64.b64decode(found).decode()


def bundles(cluster: Cluster) -> list[str]:
    """Return each webhook's caBundle."""
    webhooks = cluster.server.api.get(_CONFIGURATION).object["webhooks"]
    return [base64.b64decode(webhook["clientConfig"]["caBundle"]).decode() for webhook in webhooks]


def presented(cluster: Cluster) -> set[bytes]:
    return {replica.shown() for replica in cluster.replicas}


def test_replicas_that_start_together_have_one_authority_that_all_webhooks_trust(cluster: Cluster) -> None:
    authority, leaf = kept(cluster, "ca.crt"), kept(cluster, "tls.crt")

    assert authority.count("BEGIN CERTIFICATE") == 1
    assert {bundle.strip() for bundle in bundles(cluster)} == {authority.strip()}
    assert len(bundles(cluster)) == len(pods())
    assert presented(cluster) == {ssl.PEM_cert_to_DER_cert(leaf[: leaf.index("-----END CERTIFICATE-----") + 25])}
    assert cluster.trains()


def test_no_training_pod_is_refused_while_the_authority_is_replaced(cluster: Cluster) -> None:
    before = presented(cluster)
    cluster.server.api.merge(_SECRET, {"metadata": {"annotations": {ROTATE: ""}}})
    refused, pods, ends = 0, 0, time.monotonic() + _SECONDS
    while presented(cluster) & before and time.monotonic() < ends:
        refused += not cluster.trains()
        pods += 1
        time.sleep(0.1)

    assert refused == 0
    assert pods > 1  # the new certificate is presented after five seconds at least
    assert len(presented(cluster)) == 1
    assert not presented(cluster) & before
    assert {bundle.count("BEGIN CERTIFICATE") for bundle in bundles(cluster)} == {
        2
    }  # the old authority stays in the bundle for an hour
    assert ROTATE not in (cluster.server.api.get(_SECRET).object["metadata"].get("annotations") or {})
