"""When an object was created, whether it has been deleted, and a pod's phase."""

from typing import Any

import pytest

from railnet.objects.metadata_times import created, created_text, is_deleted
from railnet.objects.pod_phase import PENDING, phase


@pytest.mark.parametrize("metadata", [{}, {"creationTimestamp": None}, {"creationTimestamp": ""}])
def test_time_of_creation_that_is_not_known_is_zero_and_no_text(metadata: dict[str, Any]) -> None:
    assert (created(metadata), created_text(metadata)) == (0.0, "")


def test_time_of_creation_is_read() -> None:
    metadata = {"creationTimestamp": "1970-01-01T00:01:00Z"}

    assert (created(metadata), created_text(metadata)) == (60.0, "1970-01-01T00:01:00Z")


@pytest.mark.parametrize(
    ("metadata", "deleted"),
    [({}, False), ({"deletionTimestamp": None}, False), ({"deletionTimestamp": "1970-01-01T00:01:00Z"}, True)],
)
def test_object_is_deleted_from_the_time_of_its_deletion_on(metadata: dict[str, Any], deleted: bool) -> None:
    assert is_deleted(metadata) is deleted


@pytest.mark.parametrize("document", [{}, {"status": None}, {"status": {}}, {"status": {"phase": ""}}])
def test_pod_without_a_phase_is_pending(document: dict[str, Any]) -> None:
    assert phase(document) == PENDING
    assert phase({"status": {"phase": "Running"}}) == "Running"
