"""A review from bytes to bytes: a body that is not a review is refused, and every review is answered."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.admission.review import MAX_BYTES, UnreadableReview, review
from railnet.admission.review_configuration import Policy
from tests.railnet.admission.reviewing import a_review, ask, patch_of, reviewed

TRAINING: dict[str, Any] = {
    "metadata": {"name": "p", "labels": {"railnet.io/net1": "true"}},
    "spec": {"containers": [{"name": "main"}]},
}

UNREADABLE = {
    "nothing": b"",
    "no JSON": b"{",
    "no UTF-8": b'{"apiVersion": "\xff"}',
    "nested too deeply": b"[" * 100_000,
    "a number with too many digits": b"1" * 10_000,
    "no object": b"[]",
    "another object": b'{"apiVersion": "v1", "kind": "Pod"}',
    "an older version": b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {"uid": "u"}}',
    "another kind of that version": b'{"apiVersion": "admission.k8s.io/v1", "kind": "Other", "request": {"uid": "u"}}',
    "no request": b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
    "no uid": b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {}}',
    "a uid that is no text": b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": 1}}',
    "too many values": a_review({"list": [{}] * 60_000}),
    "a number with many digits": a_review(TRAINING).replace(b"false", b"1" * 1000),
    "a fraction with many digits": a_review(TRAINING).replace(b"false", b"1." + b"1" * 1000),
    "a uid of megabytes": a_review(TRAINING, uid="u" * (1 << 20)),
    "too large": a_review(TRAINING).ljust(MAX_BYTES + 1),
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_review_refuses_a_body_that_is_no_review(body: bytes):
    with pytest.raises(UnreadableReview):
        review(body, Policy())


def test_answer_has_the_uid_of_the_request():
    answer = json.loads(review(a_review(TRAINING, uid="abc"), Policy()).body)

    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert answer["response"]["uid"] == "abc"


OUT_OF_SCOPE: dict[str, dict[str, Any]] = {
    "update": {"operation": "UPDATE"},
    "deletion": {"operation": "DELETE", "object": None},
    "ephemeral containers": {"operation": "CREATE", "subResource": "ephemeralcontainers"},
    "binding": {"subResource": "binding", "kind": {"group": "", "version": "v1", "kind": "Binding"}},
    "another kind": {"kind": {"group": "batch", "version": "v1", "kind": "Job"}},
}


@pytest.mark.parametrize("changes", OUT_OF_SCOPE.values(), ids=OUT_OF_SCOPE.keys())
def test_request_other_than_the_creation_of_a_pod_passes_untouched(changes: dict[str, Any]):
    assert ask(**{"pod": TRAINING, "uid": "u", **changes}) == {"uid": "u", "allowed": True}


def test_dry_run_gets_the_same_answer():
    assert ask(TRAINING, dryRun=True) == ask(TRAINING, dryRun=False)


def test_review_takes_the_namespace_from_the_request():
    pod = {**TRAINING, "metadata": {**TRAINING["metadata"], "annotations": {"railnet.io/network": "storage"}}}

    message = ask(pod, namespace="team-b")["status"]["message"]

    assert "namespace 'team-b'" in message


def test_unknown_annotation_causes_a_warning():
    pod = {**TRAINING, "metadata": {**TRAINING["metadata"], "annotations": {"railnet.io/vfs": "4"}}}

    response = ask(pod)

    assert patch_of(response)
    [warning] = response["warnings"]
    assert warning.startswith("railnet.io/vfs has no effect: this version reads only railnet.io/vf, ")


def test_many_annotations_without_effect_cause_few_warnings():
    annotations = {f"railnet.io/{number}": "" for number in range(1000)}
    pod = {**TRAINING, "metadata": {**TRAINING["metadata"], "annotations": annotations}}

    warnings = ask(pod)["warnings"]

    assert len(warnings) == 17
    assert warnings[-1] == "984 more warnings"


def test_annotation_on_an_untouched_pod_causes_a_warning_with_the_reason():
    pod = {
        "metadata": {"name": "web", "annotations": {"railnet.io/vf": "1"}},
        "spec": {"containers": [{"name": "web"}]},
    }

    [warning] = ask(pod)["warnings"]

    assert warning.startswith("railnet.io/vf has no effect on this pod: its labels match no training operator")


def test_explanation_causes_no_warning():
    assert "warnings" not in ask(reviewed(TRAINING))


def test_message_of_a_denial_has_a_limited_length():
    pod = {**TRAINING, "metadata": {**TRAINING["metadata"], "annotations": {"railnet.io/container": "x" * 100_000}}}

    response = ask(pod)

    assert not response["allowed"]
    assert len(response["status"]["message"]) <= 1024


MALFORMED: dict[str, Any] = {
    "null": None,
    "a list": [],
    "no spec": {"metadata": {}},
    "no containers": {"metadata": {}, "spec": {"containers": []}},
    "containers that are no list": {"metadata": {}, "spec": {"containers": {}}},
    "a container that is no mapping": {"metadata": {}, "spec": {"containers": ["main"]}},
    "a container without a name": {"metadata": {}, "spec": {"containers": [{}]}},
    "a label that is a number": {"metadata": {"labels": {"task": 1}}, "spec": {"containers": [{"name": "x"}]}},
    "resources that are a list": {"metadata": {}, "spec": {"containers": [{"name": "x", "resources": ["a"]}]}},
    "a variable without a name": {"metadata": {}, "spec": {"containers": [{"name": "x", "env": [{}]}]}},
    "an owner that is no mapping": {"metadata": {"ownerReferences": ["x"]}, "spec": {"containers": [{"name": "x"}]}},
}


@pytest.mark.parametrize("pod", MALFORMED.values(), ids=MALFORMED.keys())
def test_object_that_is_no_pod_is_denied_with_the_expected_form(pod: Any):
    response = ask(pod)

    assert not response["allowed"]
    assert response["status"]["code"] == 400
    assert "; it should " in response["status"]["message"]


FIELDS = (
    *("metadata", "labels", "annotations", "ownerReferences", "controller", "railnet.io/net1", "railnet.io/vf", "name"),
    *("spec", "containers", "hostNetwork", "resources", "limits", "requests", "env", "value"),
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=20,
)


@pytest.mark.slow
@given(st.fixed_dictionaries({"metadata": ANYTHING, "spec": ANYTHING}) | ANYTHING)
def test_any_object_gets_an_answer(pod: Any):
    assert ask(pod)["allowed"] in (True, False)
