"""The webhook of the chart where a node offers its VFs by DRA: one option more, and the rights to read claims."""

import pytest

from railnet.__main__ import _parser
from railnet.admission import webhook_scope
from railnet.admission.certificates.cluster_objects import NAME
from tests.charts import features
from tests.charts.rendered import CHART, by_name, container, of_kind, rendered, rights
from tests.railnet.webhook.test_watched_claims import watched

pytestmark = pytest.mark.slow

RIGHTS = {
    ("resource.k8s.io", resource, verb)
    for resource in ("resourceclaims", "resourceclaimtemplates")
    for verb in ("list", "watch")
}


def test_option_and_rights_come_with_offer_dra_alone() -> None:
    without, with_it = rendered(**features.WEBHOOK), rendered(**{**features.WEBHOOK, **features.DRA})
    before, after = (container(documents, "Deployment", NAME)["args"] for documents in (without, with_it))

    assert after == [*before, "--claims"]
    assert _parser().parse_args(after).claims is True
    assert _parser().parse_args(before).claims is False
    assert rights(with_it, NAME) - rights(without, NAME) == RIGHTS


def test_rights_are_those_of_the_watches() -> None:
    used = {
        (informer._about.api_version.partition("/")[0], informer._about.resource, verb)
        for informer in watched().informers.values()
        for verb in ("list", "watch")
    }

    assert used == RIGHTS


def test_one_group_of_nodes_with_dra_is_enough() -> None:
    group = {"name": "new", "nodeSelector": {"a": "b"}, "configuration": {"offer": "dra"}}
    documents = rendered(**{**features.WEBHOOK, "node.groups": [group]})

    assert "--claims" in container(documents, "Deployment", NAME)["args"]
    entries = of_kind(documents, "MutatingWebhookConfiguration", NAME)["webhooks"]
    assert entries == webhook_scope.pods(by_claims=True)


def test_without_dra_the_webhook_is_not_asked_about_pods_for_their_claims() -> None:
    entries = of_kind(rendered(**features.WEBHOOK), "MutatingWebhookConfiguration", NAME)["webhooks"]

    assert "resources.claims" not in str(entries)


def test_without_the_webhook_there_is_no_right() -> None:
    assert ("ClusterRole", "railnet-admission-claims") not in by_name(rendered(**features.DRA))


def test_webhook_with_certificates_of_cert_manager_gets_a_token_for_the_claims() -> None:
    documents = rendered(**{**features.CERT_MANAGER, **features.DRA})

    assert of_kind(documents, "ServiceAccount", NAME)["automountServiceAccountToken"] is True
    assert rights(documents, NAME) == RIGHTS


def test_each_right_has_its_reason_beside_it() -> None:
    lines = (CHART / "templates/webhook/claims-role.yaml").read_text().partition("---")[0].splitlines()

    assert [line for line in lines if line.lstrip() in ("- list", "- watch")] == []
    assert sum("- list #" in line or "- watch #" in line for line in lines) == 2
