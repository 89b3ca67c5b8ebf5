"""Requests: their paths, and their names in messages."""

import pytest

from apiserver.request import ApiObject, create, get, json_patch, merge_patch, update

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


@pytest.mark.parametrize("name", ["", "../nodes", "a/b", "a?b", "A", "a\n", "-a", "a..b", "a" * 254, "a%2fb", "ü"])
def test_name_that_is_no_dns_name_is_refused(name: str) -> None:
    for names in ((name, "ml"), ("train-0", name)):
        with pytest.raises(ValueError, match="cannot be the name of an API object"):
            ApiObject("v1", "pods", *names)
