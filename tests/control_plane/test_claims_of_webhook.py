"""Training pods that ask for VFs by claims: the API server asks the webhook about them, and they get no request beside their claims."""

import copy
from collections.abc import Iterator

import pytest

from railnet.kubelet.dra_driver_name import DRIVER
from tests.cluster.chart import WEBHOOK
from tests.cluster.process import wait_until
from tests.control_plane.api import JsonObject
from tests.control_plane.cluster import TRAINING, Cluster
from tests.control_plane.server import ApiServer

VF = "rdma/ib_vf"
SECONDS = 60.0
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaimtemplates"


@pytest.fixture(scope="module")
def webhook(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    values = {**WEBHOOK, "offer": "dra"}
    with Cluster(server, values, tmp_path_factory.mktemp("webhook"), options=["--claims"]) as found:
        yield found


def by_template(name: str) -> JsonObject:
    """Return a training pod that asks by a template, and for no extended resource."""
    pod: JsonObject = copy.deepcopy(TRAINING.pod)
    container, *_ = pod["spec"]["containers"]
    container["resources"] = {"claims": [{"name": "vf"}]}
    pod["spec"]["resourceClaims"] = [{"name": "vf", "resourceClaimTemplateName": name}]
    return pod


def create_template(server: ApiServer, namespace: str, name: str, device_class: str) -> None:
    request = {"name": "vf", "exactly": {"deviceClassName": device_class, "count": 2}}
    body = {"metadata": {"name": name}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    answer = server.api.create(TEMPLATES.format(namespace), body)
    assert answer.status == 201, answer.message


def reviewed(webhook: Cluster, namespace: str, name: str) -> JsonObject:
    """Return the container of a pod that is let in when its template is known."""
    last: list[JsonObject] = []

    def is_let_in() -> bool:
        answer = webhook.create(by_template(name), namespace)
        assert answer.status == 201 or "was not reported to Railnet yet" in answer.message, answer.message
        last.extend([answer.object] if answer.status == 201 else [])
        return bool(last)

    wait_until(is_let_in, SECONDS, "the template to be known")
    container: JsonObject = last[0]["spec"]["containers"][0]
    return container


def names(container: JsonObject) -> set[str]:
    return {variable["name"] for variable in container.get("env", ())}


def test_pod_with_claims_of_vfs_gets_variables_and_no_request(server: ApiServer, webhook: Cluster) -> None:
    namespace = webhook.namespace("claims-of-vfs", None)
    create_template(server, namespace, "vfs", DRIVER)

    container = reviewed(webhook, namespace, "vfs")
    assert "NCCL_SOCKET_IFNAME" in names(container)
    assert VF not in container["resources"].get("limits", {})


def test_pod_whose_template_does_not_exist_is_refused_and_told_what_to_do(webhook: Cluster) -> None:
    namespace = webhook.namespace("claims-to-come", net1=True)
    answer = webhook.create(by_template("later"), namespace)

    assert answer.status == 503
    assert f"ResourceClaimTemplate later of namespace {namespace} does not exist" in answer.message
    assert "create it if it does not exist, then try again" in answer.message


def test_pod_with_claims_of_others_is_decided_as_without(server: ApiServer, webhook: Cluster) -> None:
    """Its namespace asks for rails, so it gets a request."""
    namespace = webhook.namespace("claims-of-others", net1=True)
    create_template(server, namespace, "gpus", "gpu.example.com")

    assert reviewed(webhook, namespace, "gpus")["resources"]["limits"][VF] == "1"
