"""Requests: their paths, and their names in messages."""

import pytest

from railnet.apiserver.request import (
    ApiObject,
    Collection,
    Request,
    create,
    delete,
    evict,
    get,
    json_patch,
    list_page,
    merge_patch,
    update,
    watch,
)

POD = ApiObject("v1", "pods", "train-0", "ml", "status")
SECRET = ApiObject("v1", "secrets", "tls", "railnet")
WEBHOOKS = ApiObject("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", "railnet-admission")


@pytest.mark.parametrize(
    ("request_", "words", "line"),
    [
        (
            merge_patch(POD, {}),
            "patch pods/train-0/status in namespace ml",
            "PATCH /api/v1/namespaces/ml/pods/train-0/status",
        ),
        (
            evict(ApiObject("v1", "pods", "train-0", "ml"), "uid-7"),
            "create pods/train-0/eviction in namespace ml",
            "POST /api/v1/namespaces/ml/pods/train-0/eviction",
        ),
        (create(SECRET, {}), "create secrets/tls in namespace railnet", "POST /api/v1/namespaces/railnet/secrets"),
        (update(SECRET, {}), "update secrets/tls in namespace railnet", "PUT /api/v1/namespaces/railnet/secrets/tls"),
        (
            get(WEBHOOKS),
            "get mutatingwebhookconfigurations/railnet-admission",
            "GET /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/railnet-admission",
        ),
    ],
    ids=str,
)
def test_request_has_words_and_a_path(request_: object, words: str, line: str) -> None:
    assert str(request_) == words
    assert f"{request_.method} {request_.path}" == line  # type: ignore[attr-defined]


def test_kind_of_a_patch_is_its_content_type() -> None:
    assert merge_patch(POD, {}).content_type == "application/merge-patch+json"
    assert json_patch(POD, []).content_type == "application/json-patch+json"


def test_eviction_names_the_pod_by_its_uid() -> None:
    body = evict(ApiObject("v1", "pods", "train-0", "ml"), "uid-7").body

    assert body == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "train-0", "namespace": "ml"},
        "deleteOptions": {"preconditions": {"uid": "uid-7"}},
    }


@pytest.mark.parametrize("name", ["", "../nodes", "a/b", "a?b", "A", "a\n", "-a", "a..b", "a" * 254, "a%2fb", "ü"])
def test_name_that_is_no_dns_name_is_refused(name: str) -> None:
    for names in ((name, "ml"), ("train-0", name)):
        with pytest.raises(ValueError, match="cannot be the name of an API object"):
            ApiObject("v1", "pods", *names)


PODS = Collection("v1", "pods")
CHOSEN = Collection("apps/v1", "deployments", "ml", "app=train,role in (ps, worker)", "metadata.name=a&b")


@pytest.mark.parametrize(
    ("request_", "words", "line"),
    [
        (list_page(PODS, 256), "list pods", "GET /api/v1/pods?limit=256"),
        (list_page(PODS, 1, "a/b=+"), "list pods", "GET /api/v1/pods?limit=1&continue=a%2Fb%3D%2B"),
        (list_page(PODS, 1, "\udcf2"), "list pods", "GET /api/v1/pods?limit=1&continue=%3F"),
        (
            list_page(CHOSEN, 5),
            "list deployments in namespace ml",
            (
                "GET /apis/apps/v1/namespaces/ml/deployments?labelSelector=app%3Dtrain%2Crole+in+%28ps%2C+worker%29"
                "&fieldSelector=metadata.name%3Da%26b&limit=5"
            ),
        ),
        (
            watch(PODS, "77", 300),
            "watch pods",
            "GET /api/v1/pods?watch=true&resourceVersion=77&timeoutSeconds=300&allowWatchBookmarks=true",
        ),
        (
            watch(Collection("v1", "pods", "ml", fields="spec.nodeName=n1"), "5", 60),
            "watch pods in namespace ml",
            (
                "GET /api/v1/namespaces/ml/pods?fieldSelector=spec.nodeName%3Dn1&watch=true&resourceVersion=5&timeoutSeconds=60"
                "&allowWatchBookmarks=true"
            ),
        ),
        (
            delete(SECRET, "u-1"),
            "delete secrets/tls in namespace railnet",
            "DELETE /api/v1/namespaces/railnet/secrets/tls",
        ),
    ],
    ids=str,
)
def test_request_for_many_objects_has_words_a_path_and_a_query(request_: Request, words: str, line: str) -> None:
    assert str(request_) == words
    assert f"{request_.method} {request_.path}" == line


def test_delete_names_the_object_by_its_uid() -> None:
    assert delete(SECRET, "u-1").body == {"preconditions": {"uid": "u-1"}, "propagationPolicy": "Background"}
    assert delete(SECRET, "u-1", "Orphan").body == {"preconditions": {"uid": "u-1"}, "propagationPolicy": "Orphan"}


@pytest.mark.parametrize("namespace", ["", "../kube-system", "a/b", "A", "a?b"])
def test_collection_of_a_namespace_that_is_no_dns_name_is_refused(namespace: str) -> None:
    """An empty one would be all namespaces."""
    with pytest.raises(ValueError, match="cannot be the name of an API object"):
        Collection("v1", "pods", namespace)


@pytest.mark.parametrize(
    ("request_", "verb"),
    [
        (list_page(PODS, 1), "list"),
        (watch(PODS, "1", 1), "watch"),
        (delete(SECRET, "u"), "delete"),
        (get(SECRET), "get"),
    ],
    ids=str,
)
def test_right_of_a_request_is_named_as_rbac_names_it(request_: Request, verb: str) -> None:
    assert request_.verb.right == verb
