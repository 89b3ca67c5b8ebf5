"""The chart with topologyLabels: the daemon gets the right to patch nodes together with the policy that bounds it, and umad devices."""

import re

import pytest

from railnet.configuration import parse
from railnet.fabric.topology_labels import LEAF, RAILS, RATE, is_ours, leaf_of_rail
from tests.charts import features
from tests.charts.rendered import CHART, by_name, container, node_yaml, pod, rendered, rights


@pytest.mark.slow
def test_value_adds_one_right_its_policy_and_the_switch_in_the_configuration() -> None:
    without, with_it = rendered(), rendered(**features.TOPOLOGY_LABELS)

    assert by_name(with_it).keys() - by_name(without).keys() == {
        (kind, "railnet-own-node-nodes") for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    }
    assert rights(with_it, "railnet") - rights(without, "railnet") == {("", "nodes", "patch")}
    switches = [parse(node_yaml(documents), "node.yaml").publish.topology_labels for documents in (with_it, without)]
    assert switches == [True, False]


@pytest.mark.slow
def test_daemon_alone_is_privileged_for_the_umad_devices_and_differs_in_nothing_else() -> None:
    with_labels, without = (
        container(rendered(**values), "DaemonSet", "railnet") for values in (features.TOPOLOGY_LABELS, {})
    )

    context = without["securityContext"]
    assert with_labels == {**without, "securityContext": {**context, "privileged": True}}
    assert "privileged" not in context
    spec = pod(rendered(**features.TOPOLOGY_LABELS), "DaemonSet", "railnet")
    assert all("privileged" not in one["securityContext"] for one in spec["initContainers"])


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        *((key, True) for key in (LEAF, RAILS, RATE, leaf_of_rail(0), leaf_of_rail(127))),
        *(
            (key, False)
            for key in ("railnet.io/net1", "railnet.io/leafs", "xrailnet.io/leaf", "railnet-io/leaf", "zone")
        ),
    ],
)
def test_policy_and_code_name_the_same_keys(key: str, ours: bool) -> None:
    text = (CHART / "templates/node/node-object-policy.yaml").read_text()
    (pattern,) = re.findall(r"key\.matches\('([^']+)'\)", text)

    assert (re.search(pattern, key) is not None, is_ours(key)) == (ours, ours)
