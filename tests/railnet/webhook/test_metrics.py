"""The metrics of the admission helper."""

from datetime import UTC, datetime

from railnet.jobs.operators import OPERATORS
from railnet.webhook.metrics import AdmissionMetrics


def samples(metrics: AdmissionMetrics) -> list[str]:
    return [line for line in metrics.text().splitlines() if not line.startswith("#") and "_bucket" not in line]


def test_every_family_is_declared_before_the_first_review():
    metrics = AdmissionMetrics(lambda: None)

    assert [line.split()[2:] for line in metrics.text().splitlines() if line.startswith("# TYPE")] == [
        ["railnet_admission_reviews_total", "counter"],
        ["railnet_admission_review_seconds", "histogram"],
        ["railnet_admission_certificate_expiry_timestamp_seconds", "gauge"],
    ]
    assert samples(metrics) == ["railnet_admission_review_seconds_sum 0.0", "railnet_admission_review_seconds_count 0"]


def test_reviews_are_counted_by_outcome_and_operator_and_timed():
    metrics = AdmissionMetrics(lambda: datetime(2026, 1, 1, tzinfo=UTC))
    for outcome, operator in (("patched", "KubeRay"), ("patched", "KubeRay"), ("failed", "")):
        metrics.reviewed(outcome, operator, 0.25)

    assert samples(metrics) == [
        'railnet_admission_reviews_total{outcome="failed",operator=""} 1',
        'railnet_admission_reviews_total{outcome="patched",operator="KubeRay"} 2',
        "railnet_admission_review_seconds_sum 0.75",
        "railnet_admission_review_seconds_count 3",
        "railnet_admission_certificate_expiry_timestamp_seconds 1767225600.0",
    ]


def test_operator_names_need_no_escaping_in_labels():
    assert all('"' not in one.name and "\\" not in one.name for one in OPERATORS)
