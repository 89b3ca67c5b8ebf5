"""The fields that operators write."""

import pytest

from railnet.jobs.operator_pod_fields import CONTROLLER_NAME, address_count, either, env, first, key
from tests.railnet.jobs.builders import a_container, a_pod


def test_key_reads_the_label_before_the_annotation():
    pod = a_pod(labels={"a": "label"}, annotations={"a": "annotation", "b": "annotation"})

    assert [key(name).read(pod, a_container()) for name in "abc"] == ["label", "annotation", None]


@pytest.mark.parametrize(("value", "expected"), [("4", "4"), ("1:4", "4"), (None, None)])
def test_env_reads_a_number_or_the_end_of_a_range(value: str | None, expected: str | None):
    assert env("PET_NNODES").read(a_pod(), a_container(env={"PET_NNODES": value})) == expected


TF_CONFIGS = {
    '{"cluster": {"ps": ["a:1"], "worker": ["b:1", "c:1"]}}': "3",
    '{"cluster": {"ps": ["a:1"], "worker": {"1": "c:1"}}}': None,
    '{"cluster": {}}': None,
    '{"cluster": 3}': None,
    "{}": None,
    "[]": None,
    "{": None,
    "[" * 100_000: None,
}


@pytest.mark.parametrize(("text", "expected"), TF_CONFIGS.items(), ids=lambda value: f"{value:.40}" if value else None)
def test_address_count_is_none_unless_tf_config_is_complete(text: str, expected: str | None):
    assert address_count("TF_CONFIG").read(a_pod(), a_container(env={"TF_CONFIG": text})) == expected


def test_first_reads_the_first_field_with_a_text():
    pod = a_pod(labels={"empty": "", "b": "2"})

    assert first(key("none"), key("empty"), key("b")).read(pod, a_container()) == "2"
    assert first(key("none")).read(pod, a_container()) is None


def test_either_reads_one_of_two_texts_by_a_key():
    leader = either("index", "0", "leader", "worker")

    assert leader.read(a_pod(labels={"index": "0"}), a_container()) == "leader"
    assert leader.read(a_pod(labels={"index": "1"}), a_container()) == "worker"
    assert leader.read(a_pod(), a_container()) == "worker"


def test_controller_name_is_the_pods_name_without_a_controller():
    assert CONTROLLER_NAME.read(a_pod(owner="job"), a_container()) == "job"
    assert CONTROLLER_NAME.read(a_pod(name="solo-"), a_container()) == "solo"
