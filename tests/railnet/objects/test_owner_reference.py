"""The owners of an object, and the one that makes it again."""

from typing import Any

import pytest

from railnet.objects.involved_object import InvolvedObject
from railnet.objects.owner_reference import OwnerReference, controller, references

JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "3"}


def owned(*owner_references: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"ownerReferences": list(owner_references)}}


def test_controller_is_the_owner_that_makes_the_object_again() -> None:
    read = controller(
        owned({"kind": "ConfigMap"}, {**JOB, "controller": False}, {**JOB, "uid": "4", "controller": True})
    )

    assert read == OwnerReference("batch/v1", "Job", "train", "4")
    assert read.reference() == {**JOB, "uid": "4"}
    assert read.involved("ml") == InvolvedObject("batch/v1", "Job", "ml", "train", "4")


@pytest.mark.parametrize("metadata", [{}, {"ownerReferences": None}, {"ownerReferences": []}])
def test_object_without_owners_has_no_controller(metadata: dict[str, Any]) -> None:
    assert controller({"metadata": metadata}) is None
    assert not references(metadata)


@pytest.mark.parametrize("value", [None, "true", 1, "True"])
def test_owner_that_does_not_say_true_is_no_controller(value: object) -> None:
    assert controller(owned({**JOB, "controller": value})) is None


@pytest.mark.parametrize("missing", JOB)
def test_controller_without_a_field_is_refused(missing: str) -> None:
    reference = {key: value for key, value in JOB.items() if key != missing}

    with pytest.raises(KeyError):
        controller(owned({**reference, "controller": True}))


@pytest.mark.parametrize("key", JOB)
def test_text_that_no_object_has_is_cut_and_names_no_object(key: str) -> None:
    read = controller(owned({**JOB, key: "x" * 240_000, "controller": True}))

    assert read is not None
    assert max(read.reference().values(), key=len) == "x" * 321
