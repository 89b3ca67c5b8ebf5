"""The webhook of the chart with gangs: its options, reviews of pods that name a gang and of their Jobs, and one right for the engine."""

import pytest

from railnet.__main__ import _parser
from railnet.admission.certificates.cluster_objects import NAME
from tests.charts import features
from tests.charts.rendered import by_name, of_kind, rendered, rights

pytestmark = pytest.mark.slow

BELOW = {**features.WEBHOOK, **features.CONTROLLERS}


GATES = {**features.GANGS, "gangs.engine": "gates"}


def test_webhook_gets_its_options_and_reviews_and_no_right_with_gates() -> None:
    base, gangs = by_name(rendered(**BELOW)), by_name(rendered(**GATES))
    deployment = ("Deployment", NAME)
    (container,) = gangs[deployment]["spec"]["template"]["spec"]["containers"]
    (before,) = base[deployment]["spec"]["template"]["spec"]["containers"]

    assert {key for key, one in base.items() if gangs[key] != one} == {
        deployment,
        ("Deployment", "railnet-controllers"),
        ("MutatingWebhookConfiguration", NAME),
        ("Job", "railnet-uninstall"),  # lets gangs go
        ("ClusterRole", "railnet-uninstall"),
    }
    assert container == {**before, "args": [*before["args"], "--gangs", "--gang-engine=gates"]}
    assert _parser().parse_args(container["args"]).gangs is True
    assert _parser().parse_args(before["args"]).gangs is False
    assert rights(gangs.values(), NAME) == rights(base.values(), NAME)


def test_reviews_of_gangs_follow_those_of_services() -> None:
    documents = rendered(**{**features.GANGS, **features.HOST_NETWORK})

    names = [one["name"] for one in of_kind(documents, "MutatingWebhookConfiguration", NAME)["webhooks"]]
    assert names[-3:] == ["label.services.railnet.io", "gangs.railnet.io", "gang-jobs.railnet.io"]


@pytest.mark.parametrize(("engine", "asks"), [("gates", False), ("auto", True), ("kubernetes", True)])
def test_webhook_with_certificates_of_cert_manager_gets_a_token_only_to_ask_for_the_engine(
    engine: str, asks: bool
) -> None:
    documents = rendered(**{**features.GANGS, **features.CERT_MANAGER, "gangs.engine": engine})

    assert of_kind(documents, "ServiceAccount", NAME)["automountServiceAccountToken"] is asks
    assert rights(documents, NAME) == ({("scheduling.k8s.io", "podgroups", "create")} if asks else set())


def test_unknown_engine_is_refused() -> None:
    with pytest.raises(AssertionError, match="engine"):
        rendered(**{**features.GANGS, "gangs.engine": "volcano"})
