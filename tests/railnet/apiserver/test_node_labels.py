"""The request that looks at a node's labels, the one that changes them, and the answer of both."""

import pytest

from railnet.apiserver import node_labels
from railnet.apiserver.request import Verb


def test_look_is_a_patch_that_changes_nothing_and_asks_for_the_metadata() -> None:
    request = node_labels.look("gpu-7")

    assert (request.verb, request.path) == (Verb.PATCH, "/api/v1/nodes/gpu-7")
    assert (request.body, request.content_type) == ({"metadata": {"labels": {}}}, "application/merge-patch+json")
    assert request.accept.startswith("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,")


def test_change_sets_labels_and_removes_those_that_are_none() -> None:
    request = node_labels.change("gpu-7", {"railnet.io/rails": "8", "railnet.io/leaf": None})

    assert request.body == {"metadata": {"labels": {"railnet.io/rails": "8", "railnet.io/leaf": None}}}


@pytest.mark.parametrize("node", ["", "../pods", "GPU_7"])
def test_name_that_is_no_nodes_name_is_refused(node: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of an API object"):
        node_labels.look(node)


def test_labels_are_read_from_the_answer() -> None:
    assert node_labels.parse({"metadata": {"labels": {"a": "b", "c": ""}}}) == {"a": "b", "c": ""}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"metadata": None},
        {"metadata": []},
        {"metadata": {}},
        {"metadata": {"labels": None}},
        {"metadata": {"labels": [1]}},
    ],
    ids=str,
)
def test_answer_without_labels_is_of_a_node_without_labels(answer: dict[str, object]) -> None:
    assert node_labels.parse(answer) == {}


def test_label_that_is_no_text_is_left_out() -> None:
    assert node_labels.parse({"metadata": {"labels": {"a": 1, "b": "c"}}}) == {"b": "c"}
