"""The requests about one condition and the taints of a node, and what their answers show."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from railnet.apiserver import node_status
from railnet.apiserver.node_status import NodeCondition, NodeState
from railnet.apiserver.request import Verb

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
KIND = "RailnetRails"


def test_look_is_a_patch_of_the_status_that_changes_nothing() -> None:
    request = node_status.look("gpu-7")

    assert (request.verb, request.path, request.body) == (Verb.PATCH, "/api/v1/nodes/gpu-7/status", {})


def test_one_condition_is_merged_by_its_type() -> None:
    request = node_status.set_condition(
        "gpu-7",
        KIND,
        status="False",
        reason="RailFlaps",
        message="words",
        since=NOON.astimezone(timezone(timedelta(hours=2))),
        now=NOON + timedelta(minutes=1, microseconds=7),
    )

    assert (request.path, request.content_type) == (
        "/api/v1/nodes/gpu-7/status",
        "application/strategic-merge-patch+json",
    )
    assert request.body == {
        "status": {
            "conditions": [
                {
                    "type": KIND,
                    "status": "False",
                    "reason": "RailFlaps",
                    "message": "words",
                    "lastTransitionTime": "2026-01-01T12:00:00Z",
                    "lastHeartbeatTime": "2026-01-01T12:01:00Z",
                }
            ]
        }
    }


def test_one_condition_is_removed_by_its_type() -> None:
    assert node_status.remove_condition("gpu-7", KIND).body == {
        "status": {"conditions": [{"$patch": "delete", "type": KIND}]}
    }


def test_taints_are_replaced_only_in_the_version_that_was_looked_at() -> None:
    request = node_status.set_taints("gpu-7", [{"key": "a", "effect": "NoSchedule"}], "41")

    assert (request.path, request.content_type) == ("/api/v1/nodes/gpu-7", "application/merge-patch+json")
    assert request.body == {
        "metadata": {"resourceVersion": "41"},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
    }


def test_taints_are_not_replaced_without_a_version() -> None:
    with pytest.raises(ValueError, match="nodes/gpu-7 shows no resourceVersion"):
        node_status.set_taints("gpu-7", [], "")


@pytest.mark.parametrize("node", ["", "../pods", "GPU_7"])
def test_name_that_is_no_nodes_name_is_refused(node: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of an API object"):
        node_status.look(node)


def answered(condition: Any) -> Any:
    ready = {"type": "Ready", "status": "True"}
    return node_status.parse({"status": {"conditions": [ready, condition]}}, KIND).condition


def test_answer_shows_the_condition_the_taints_and_the_version() -> None:
    answer = {
        "metadata": {"resourceVersion": "41"},
        "spec": {"taints": [{"key": "a"}]},
        "status": {
            "conditions": [{"type": KIND, "status": "False", "lastTransitionTime": "2026-01-01T12:00:00Z"}],
        },
    }

    assert node_status.parse(answer, KIND) == NodeState(NodeCondition("False", NOON), [{"key": "a"}], "41")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"type": "Other", "status": "False"}, None),
        ({"type": KIND}, NodeCondition("", None)),
        (
            {"type": KIND, "status": "False", "reason": "RailFlaps", "message": "words"},
            NodeCondition("False", None, "RailFlaps", "words"),
        ),
        ({"type": KIND, "status": 1, "reason": ["x"], "message": None}, NodeCondition("", None)),
        ({"type": KIND, "status": "True", "lastTransitionTime": "yesterday"}, NodeCondition("True", None)),
        ({"type": KIND, "status": "True", "lastTransitionTime": None}, NodeCondition("True", None)),
        (7, None),
    ],
    ids=str,
)
def test_condition_in_another_form(condition: Any, expected: NodeCondition | None) -> None:
    assert answered(condition) == expected


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"status": [], "spec": None, "metadata": 1},
        {"status": {"conditions": {}}, "spec": {"taints": 7}, "metadata": {"resourceVersion": 41}},
    ],
    ids=str,
)
def test_answer_without_these_parts_is_of_a_node_without_them(answer: dict[str, Any]) -> None:
    assert node_status.parse(answer, KIND) == NodeState(None, [], "")
