"""Conditions of nodes, pods and Jobs, and the values of another type that another program may have written."""

from typing import Any

import pytest

from railnet.objects.conditions import StatusCondition, condition, conditions, is_ready, unscheduled


def with_conditions(*written: object) -> dict[str, Any]:
    return {"status": {"conditions": list(written)}}


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", False), (True, False)])
def test_object_is_ready_by_the_status_of_its_condition(status: object, ready: bool) -> None:
    assert is_ready(with_conditions({"type": "Other", "status": "True"}, {"type": "Ready", "status": status})) is ready


@pytest.mark.parametrize("document", [{}, {"status": None}, {"status": {}}, {"status": {"conditions": None}}])
def test_object_without_conditions_is_not_ready_and_has_none(document: dict[str, Any]) -> None:
    assert not is_ready(document)
    assert condition(document, "Ready") is None
    assert list(conditions(document)) == []


def test_first_of_two_conditions_of_a_type_counts() -> None:
    document = with_conditions({"type": "Ready", "status": "False"}, {"type": "Ready", "status": "True"})

    assert not is_ready(document)
    assert condition(document, "Ready") == StatusCondition("Ready", "False")


def test_condition_is_read_with_its_reason_message_and_time() -> None:
    written = {
        "type": "Failed",
        "status": "True",
        "reason": "BackoffLimitExceeded",
        "message": "too often",
        "lastTransitionTime": "1970-01-01T00:01:00Z",
    }

    (read,) = conditions(with_conditions(written))

    assert read == StatusCondition("Failed", "True", "BackoffLimitExceeded", "too often", 60.0)
    assert read.is_true


@pytest.mark.parametrize("strange", [5, [], {}, None, True, [[[]]]])
def test_field_of_another_type_counts_as_absent(strange: object) -> None:
    keys = ("type", "status", "reason", "message", "lastTransitionTime")

    assert list(conditions(with_conditions(dict.fromkeys(keys, strange)))) == [StatusCondition("", "")]


@pytest.mark.parametrize("strange", [5, "Ready", ["Ready"], [5], {"Ready": "True"}])
def test_conditions_of_another_form_are_refused(strange: object) -> None:
    with pytest.raises((TypeError, AttributeError)):
        is_ready({"status": {"conditions": strange}})
    with pytest.raises((TypeError, AttributeError)):
        list(conditions({"status": {"conditions": strange}}))


@pytest.mark.parametrize(("status", "waits"), [("False", True), ("True", False), ("Unknown", False)])
def test_scheduler_says_that_a_pod_has_no_node(status: str, waits: bool) -> None:
    document = with_conditions({"type": "PodScheduled", "status": status, "reason": "Unschedulable"})

    assert (unscheduled(document) is not None) is waits
