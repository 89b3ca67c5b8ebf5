"""The admission policy of the pods that try idle nodes, with its expressions evaluated: their account creates none that preempts a job.

Another implementation of the expression language evaluates them here; tests/control_plane uses an API server.
"""

from typing import Any

import celpy
import pytest

from railnet.validate.probe.probe_objects import Run, Target
from railnet.validate.probe.probe_objects import pod as probe_pod
from tests.charts import features
from tests.charts.rendered import JsonObject, of_kind, rendered

ACCOUNT = "system:serviceaccount:railnet:railnet-validate"
OTHER_CLASS = "only pods of the PriorityClass railnet-validate may be created"
NAME = "railnet-validate-pods"


def policy() -> JsonObject:
    spec: JsonObject = of_kind(rendered(**features.IDLE), "ValidatingAdmissionPolicy", NAME)["spec"]
    return spec


def is_true(expression: str, facts: dict[str, Any]) -> bool:
    environment = celpy.Environment()
    program = environment.program(environment.compile(expression))
    return bool(program.evaluate({name: celpy.json_to_cel(value) for name, value in facts.items()}))


def refusals(pod: dict[str, Any]) -> list[str]:
    return [rule["message"] for rule in policy()["validations"] if not is_true(rule["expression"], {"object": pod})]


@pytest.mark.slow
def test_pod_of_a_run_is_created() -> None:
    run = Run("railnet-validate-1", "railnet-validate", priority_class="railnet-validate")

    assert refusals(probe_pod(run, Target("a", "railnet-validate-1-0", 2), "uid")) == []


@pytest.mark.slow
@pytest.mark.parametrize("spec", [{}, {"priorityClassName": ""}, {"priorityClassName": "production"}])
def test_pod_of_another_class_is_refused(spec: dict[str, Any]) -> None:
    assert refusals({"spec": {"containers": [], **spec}}) == [OTHER_CLASS]


@pytest.mark.slow
def test_pods_of_the_account_alone_are_asked_about() -> None:
    (condition,) = policy()["matchConditions"]
    (rule,) = policy()["matchConstraints"]["resourceRules"]
    binding = of_kind(rendered(**features.IDLE), "ValidatingAdmissionPolicyBinding", NAME)["spec"]

    for name, is_asked in ((ACCOUNT, True), ("system:serviceaccount:team:default", False)):
        assert is_true(condition["expression"], {"request": {"userInfo": {"username": name}}}) is is_asked
    assert (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])
    assert binding == {"policyName": NAME, "validationActions": ["Deny"]}
