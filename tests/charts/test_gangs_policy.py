"""The admission policy of gangs, with its expressions evaluated: of a pod's status the controllers change the nomination only.

Another implementation of the expression language evaluates them here; tests/control_plane uses an API server.
"""

import json
from typing import Any

import celpy
import pytest

from tests.charts import features
from tests.charts.rendered import rendered

GATED: dict[str, Any] = {"schedulingGates": [{"name": "railnet.io/gang"}]}
GROUPED: dict[str, Any] = {"schedulingGroup": {"podGroupName": "gang-bert-1"}}
NOMINATION = "only a pod that waits behind the gate railnet.io/gang, or for a PodGroup, may be nominated"
NOTHING_ELSE = "nothing of a pod's status but nominatedNodeName may be changed"


def evaluate(expression: str, facts: dict[str, Any]) -> Any:
    environment = celpy.Environment(annotations={"dyn": celpy.celtypes.FunctionType})
    program = environment.program(environment.compile(expression), functions={"dyn": lambda value: value})
    return program.evaluate({name: celpy.json_to_cel(value) for name, value in facts.items()})


def refusals(spec: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    (policy,) = (
        document["spec"]
        for document in rendered(**features.GANGS)
        if document["kind"] == "ValidatingAdmissionPolicy" and document["metadata"]["name"] == "railnet-gangs"
    )
    facts: dict[str, Any] = {
        "object": {"spec": spec, "status": after},
        "oldObject": {"spec": spec, "status": before},
        "variables": {},
    }
    for variable in policy["variables"]:
        status = evaluate(variable["expression"], facts)
        facts["variables"][variable["name"]] = json.loads(json.dumps(status, cls=celpy.CELJSONEncoder))
    return [rule["message"] for rule in policy["validations"] if not evaluate(rule["expression"], facts)]


@pytest.mark.parametrize("spec", [{}, {"nodeName": "a-0"}, {"schedulingGates": [{"name": "example.com/other"}]}])
@pytest.mark.parametrize("status", [{}, {"phase": "Running", "nominatedNodeName": "a-0"}])
def test_address_of_a_pod_without_the_gate_may_be_written(spec: dict[str, Any], status: dict[str, Any]) -> None:
    """The controllers write the annotation of a sticky address through `pods/status`, and that changes nothing of the status."""
    assert refusals(spec, status, status) == []


@pytest.mark.parametrize(("before", "after"), [({}, {"nominatedNodeName": "a-0"}), ({"nominatedNodeName": "a-0"}, {})])
def test_only_a_pod_that_waits_for_its_gang_is_nominated(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert refusals(GATED, before, after) == []
    assert refusals(GROUPED, before, after) == []
    assert refusals({}, before, after) == [NOMINATION]


@pytest.mark.parametrize("after", [{"phase": "Running"}, {"phase": "Pending", "podIP": "10.0.0.1"}, {}])
def test_nothing_else_of_the_status_is_changed(after: dict[str, Any]) -> None:
    assert refusals(GATED, {"phase": "Pending"}, after) == [NOTHING_ELSE]
