"""The webhook of the chart with gangs: one option, reviews of pods that name a gang and of their Jobs, and no right."""

import pytest

from railnet.__main__ import _parser
from railnet.admission.certificates.cluster_objects import NAME
from tests.charts import features
from tests.charts.rendered import by_name, of_kind, rendered, rights

pytestmark = pytest.mark.slow

BELOW = {**features.WEBHOOK, **features.CONTROLLERS}


def test_webhook_gets_one_option_and_its_reviews_and_no_right() -> None:
    base, gangs = by_name(rendered(**BELOW)), by_name(rendered(**features.GANGS))
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
    assert container == {**before, "args": [*before["args"], "--gangs"]}
    assert _parser().parse_args(container["args"]).gangs is True
    assert _parser().parse_args(before["args"]).gangs is False
    assert rights(gangs.values(), NAME) == rights(base.values(), NAME)


def test_reviews_of_gangs_follow_those_of_services() -> None:
    documents = rendered(**{**features.GANGS, **features.HOST_NETWORK})

    names = [one["name"] for one in of_kind(documents, "MutatingWebhookConfiguration", NAME)["webhooks"]]
    assert names[-3:] == ["label.services.railnet.io", "gangs.railnet.io", "gang-jobs.railnet.io"]


def test_webhook_with_certificates_of_cert_manager_gets_no_token_for_gangs() -> None:
    documents = rendered(**{**features.GANGS, **features.CERT_MANAGER})

    assert of_kind(documents, "ServiceAccount", NAME)["automountServiceAccountToken"] is False
