"""The rule for training namespaces: the time, what keeps them, and what ends."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.errors import Misconfigured
from railnet.jobs.clean_up import namespace_rule
from railnet.jobs.clean_up.namespace_rule import FinishedNamespace, verdict
from railnet.jobs.clean_up.verdict import Action

DAY = {"railnet.io/ttl": "24h"}


@pytest.mark.parametrize(("text", "seconds"), [("5s", 5.0), ("30m", 1800.0), ("24h", 86400.0), ("7d", 604800.0)])
def test_times(text: str, seconds: float) -> None:
    assert namespace_rule.seconds({"railnet.io/ttl": text}) == seconds


@pytest.mark.parametrize(
    "text", ["", "24", "0h", "-1h", "1.5h", "24H", "1h30m", "24 h", "100000d", "forever", "\u0661h"]
)
def test_no_time_is_refused_with_what_it_should_be(text: str) -> None:
    with pytest.raises(
        Misconfigured, match="it should be a number of seconds, minutes, hours or days, such as 30m, 24h or 7d"
    ):
        namespace_rule.seconds({"railnet.io/ttl": text})


def test_missing_time_is_refused() -> None:
    with pytest.raises(Misconfigured, match=r"the annotation railnet\.io/ttl is missing"):
        namespace_rule.seconds({})


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_namespace_goes_exactly_when_the_time_is_over(since: float, now: float) -> None:
    found = verdict(DAY, FinishedNamespace(since, []), now)

    assert (found.action is Action.DELETE) == (since + 86400.0 - now <= 0)
    assert found.seconds is None if found.action is Action.DELETE else found.seconds == since + 86400.0 - now


def test_claims_keep_the_namespace_until_it_says_that_they_may_go() -> None:
    over = FinishedNamespace(0.0, ["data"])

    kept = verdict(DAY, over, 1e6)
    assert kept.action is Action.KEEP
    assert "1 PersistentVolumeClaims (data)" in kept.why
    assert verdict({**DAY, "railnet.io/delete-volumes": "true"}, over, 1e6).action is Action.DELETE
    with pytest.raises(Misconfigured, match=r"railnet.io/delete-volumes is 'yes'"):
        verdict({**DAY, "railnet.io/delete-volumes": "yes"}, over, 1e6)


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public", "kube-node-lease"])
def test_namespaces_of_the_cluster_are_protected(name: str) -> None:
    assert namespace_rule.is_protected(name)
    assert not namespace_rule.is_protected("mnist")


def ended_pod(*times: str, phase: str = "Succeeded") -> dict[str, Any]:
    return {
        "status": {
            "phase": phase,
            "containerStatuses": [{"state": {"terminated": {"finishedAt": time}}} for time in times],
        }
    }


def test_pod_ends_with_its_last_container() -> None:
    found = namespace_rule.end("Pod", ended_pod("2026-03-01T12:00:00Z", "2026-03-01T12:00:05Z"))

    assert found == (True, 1772366405.0)
    assert namespace_rule.end("Pod", ended_pod(phase="Failed")) == (False, None)
    assert namespace_rule.end("Pod", ended_pod("2026-03-01T12:00:00Z", phase="Running")) is None


@pytest.mark.parametrize("status", [{}, {"conditions": [{"type": "Available", "status": "True"}]}])
def test_deployment_never_ends(status: dict[str, Any]) -> None:
    assert namespace_rule.end("Deployment", {"status": status}) is None
