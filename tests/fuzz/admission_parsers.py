"""Parsers of the admission webhook: reviews and constraints of any author, and certificates that another program may have written."""

import base64
import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from railnet.admission.certificates import authority, ca_bundle
from railnet.admission.certificates.authority import (
    ServerCertificate,
    UnusableCertificate,
    belongs,
    parse_certificates,
    signed_by,
    signs,
)
from railnet.admission.gang import gang_review
from railnet.admission.host_network import service_review
from railnet.admission.host_network.host_port_usage import SeenPod
from railnet.admission.review import MAX_BYTES, UnreadableReview, review
from railnet.admission.review_configuration import Policy
from railnet.errors import Misconfigured
from railnet.jobs.gang import gang_constraint
from railnet.jobs.gang.node_terms import Comparison
from railnet.jobs.gang.recogniser import described
from tests.fuzz.parser import Parser

AUTHORITY = authority.make(datetime(2026, 3, 1, tzinfo=UTC))


def admission_review(data: bytes) -> None:
    """Judge an AdmissionReview: the answer has the uid, and a patch in it is a valid JSON patch."""
    if not data:
        with suppress(UnreadableReview):
            raise AssertionError(review(bytes(MAX_BYTES + 1), Policy()))
    asked = service_review.asked(data)
    for reviewed in (
        review(data, Policy(priority_class="iteration"), None),
        review(data, Policy(priority_class="iteration"), net1=True, free_port=lambda _: 20000),
        service_review.answered(asked, None),
        service_review.answered(asked, SeenPod("p", (20000,), asked.pod, ("tfjob-port",), replica=False)),
    ):
        response = json.loads(reviewed.body)["response"]
        assert isinstance(response["uid"], str)
        assert response["allowed"] in (True, False)
        if "patch" in response:
            assert all(
                step["op"] in ("add", "replace", "test", "remove")
                for step in json.loads(base64.b64decode(response["patch"]))
            )


def gang_reviews(data: bytes) -> None:
    """Judge a review of a gang: the answer has the uid, a patch has the gate, and it leaves alone what it does not know."""
    response = json.loads(gang_review.review(data).body)["response"]
    assert isinstance(response["uid"], str)
    steps = json.loads(base64.b64decode(response.get("patch", b"W10=")))
    assert all(
        step["path"].startswith(("/spec/schedulingGates", "/spec/affinity", "/metadata/annotations")) for step in steps
    )


def constraint(data: bytes) -> None:
    """Judge the annotation of a gang's constraint: what is read can be written into a pod's node affinity, and said in words."""
    found = gang_constraint.constraint(data.decode(errors="replace"))
    assert described(found)
    assert len(set(found.required)) == len(found.required)
    for term in found.nodes:
        assert term.requirements
        for one in term.requirements:
            assert bool(one.values) is (one.comparison not in (Comparison.EXISTS, Comparison.DOES_NOT_EXIST))
            assert one.holds({}) in (True, False)
            assert one.holds({one.key: "7"}) in (True, False)


def certificates(data: bytes) -> None:
    """Judge certificates: every later query of them works, and a webhook trusts exactly its CA bundle."""
    if not data:
        with suppress(UnusableCertificate):
            raise AssertionError(parse_certificates(bytes((1 << 20) + 1)))
    assert ca_bundle.everywhere(_trusting(data.decode(errors="replace"))) == frozenset()
    found = parse_certificates(data)
    now = AUTHORITY.certificate.not_valid_before_utc
    for one in found:
        signs(one)
        signed_by(one, found[0])
        belongs(AUTHORITY.key, one)
        leaf = ServerCertificate(one, b"", b"")
        leaf.valid(now)
        assert leaf.lacks(["a.svc"]) in ([], ["a.svc"])
    webhooks = _trusting(base64.b64encode(data).decode())
    assert ca_bundle.everywhere(webhooks) >= set(ca_bundle.trusted(webhooks, now))
    assert ca_bundle.operations(webhooks, [AUTHORITY.certificate])


def _trusting(bundle: str) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "1"}, "webhooks": [{"clientConfig": {"caBundle": bundle}}]}


def _as_pem(data: bytes) -> bytes:
    """Write DER as PEM: a mutation of the base64 text would seldom reach the parser of the certificate."""
    if b"-----" in data:
        return data
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(data) + b"-----END CERTIFICATE-----\n"


PARSERS = (
    Parser(
        "certificates",
        certificates,
        (UnusableCertificate,),
        {
            "railnet.admission.certificates.authority": (
                "parse_certificates",
                "_look_through",
                "_dns_names",
                "signs",
                "signed_by",
                "belongs",
            ),
            "railnet.admission.certificates.ca_bundle": (),
        },
        mend=_as_pem,
    ),
    Parser(
        "admission",
        admission_review,
        (UnreadableReview,),
        {"railnet.admission.review": ()},
    ),
    Parser("constraint", constraint, (Misconfigured,), {"railnet.jobs.gang.gang_constraint": ()}),
    Parser(
        "gang",
        gang_reviews,
        (UnreadableReview,),
        {
            "railnet.admission.gang.gang_review": (),
            "railnet.admission.gang.gang_decision": ("decide", "_others", "_no_gang", "_unread"),
            "railnet.jobs.gang.other_placement": (),
            "railnet.admission.gang.node_affinity_narrowing": (),
        },
    ),
)
