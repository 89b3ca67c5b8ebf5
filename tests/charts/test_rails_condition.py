"""The chart with railsCondition: each right comes with the policy that bounds it, and the taint with the condition."""

import re

import pytest

from railnet.configuration import Publish, parse
from railnet.fabric.rails_condition import TAINT, TYPE
from tests.charts import features
from tests.charts.rendered import CHART, by_name, container, node_yaml, rendered, rights

POLICY = ("ValidatingAdmissionPolicy", "railnet-own-node-nodes")
BINDING = ("ValidatingAdmissionPolicyBinding", "railnet-own-node-nodes")
CONDITION_RIGHT, TAINT_RIGHT = ("", "nodes/status", "patch"), ("", "nodes", "patch")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "added", "publish"),
    [
        (features.RAILS_CONDITION, {CONDITION_RIGHT}, Publish(rails_condition=True)),
        (features.RAILS_TAINT, {CONDITION_RIGHT, TAINT_RIGHT}, Publish(rails_condition=True, rails_taint=True)),
        (features.KERNEL_MESSAGES, {CONDITION_RIGHT}, Publish(rails_condition=True, kernel_messages=True)),
    ],
    ids=["condition", "taint", "kernel messages"],
)
def test_value_adds_its_rights_the_policy_and_the_switches(
    values: features.Values, added: set[tuple[str, str, str]], publish: Publish
) -> None:
    without, with_it = rendered(), rendered(**values)

    assert rights(with_it, "railnet") - rights(without, "railnet") == added
    assert by_name(with_it).keys() - by_name(without).keys() == {POLICY, BINDING}
    assert by_name(with_it)[BINDING]["spec"] == {"policyName": POLICY[1], "validationActions": ["Deny"]}
    assert parse(node_yaml(with_it), "node.yaml").publish == publish


@pytest.mark.slow
def test_daemons_container_is_as_without_them() -> None:
    with_it, without = rendered(**features.RAILS_TAINT), rendered()

    assert container(with_it, "DaemonSet", "railnet") == container(without, "DaemonSet", "railnet")


@pytest.mark.slow
def test_daemon_alone_is_privileged_for_the_kernels_log_and_differs_in_nothing_else() -> None:
    with_log, without = (
        container(rendered(**values), "DaemonSet", "railnet") for values in (features.KERNEL_MESSAGES, {})
    )

    assert with_log == {**without, "securityContext": {**without["securityContext"], "privileged": True}}


def test_policy_and_code_name_the_same_condition_and_taint() -> None:
    text = (CHART / "templates/node/node-object-policy.yaml").read_text()

    assert set(re.findall(r"one[.]type != '([^']+)'", text)) == {TYPE}
    assert set(re.findall(r"one[.]key != '([^']+)'", text)) == {TAINT}
