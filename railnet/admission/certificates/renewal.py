"""Decide which step the certificates need, and when. The time is an argument.

A rotation of the authority has three steps, each taken by the first replica that looks. ROTATE writes a new authority beside the
old one; the servers' certificate stays. When all webhooks have trusted both authorities for five seconds, RENEW signs a new
certificate by the new authority. An hour later, when every replica shows the new certificate, FINISH removes the old authority.
The certificates themselves show which step a rotation has reached.
"""

from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple

from cryptography import x509

from railnet.admission.certificates.authority import BACKDATED, ServerCertificate, signed_by
from railnet.admission.certificates.secret_content import Kept

# The longest time in which API servers learn of a changed webhook configuration. They watch it, so they need far less.
SETTLED = timedelta(seconds=5)
FINISHED = timedelta(hours=1)


class Act(Enum):
    """One step."""

    KEEP = "keep"  # nothing
    MAKE = "make"  # a new authority and a new certificate
    RENEW = "renew"  # a new certificate by the signing authority
    ROTATE = "rotate"  # a new signing authority; the old one stays trusted
    FINISH = "finish"  # from now on only the signing authority is trusted


class Step(NamedTuple):
    """A step, and the reason for it: a clause for the log."""

    act: Act
    why: str = ""


def next_step(kept: Kept, now: datetime, trusted_for: timedelta | None, *, asked: bool = False) -> Step:
    """Decide the step that is due now.

    Args:
        kept: the entries of the Secret.
        now: the time.
        trusted_for: how long this replica has seen the signing authority in all webhooks; None if it is missing in one.
        asked: whether an administrator asks for a new authority.
    """
    trouble = _invalid(kept.signer.certificate, now)
    if trouble:
        return Step(Act.MAKE, f"its authority {trouble}")
    return _of_leaf(kept, now, trusted_for) or _of_authority(kept, now, asked=asked) or Step(Act.KEEP)


def shows(shown: ServerCertificate | None, kept: Kept, now: datetime, trusted_for: timedelta | None) -> bool:
    """Decide whether a replica changes to the certificate of the Secret.

    It changes when API servers trust the issuer of that certificate. It does not wait if its present certificate is invalid, or
    has the same issuer.

    Args:
        shown: the certificate that the replica shows now.
        kept: the entries of the Secret.
        now: the time.
        trusted_for: as in `next_step`, but of the issuer of the Secret's certificate.
    """
    issuer = kept.issuer
    if kept.leaf is None or issuer is None:
        return False
    if shown is None or not shown.valid(now) or signed_by(shown.certificate, issuer):
        return True
    return _settled(trusted_for)


def _of_leaf(kept: Kept, now: datetime, trusted_for: timedelta | None) -> Step | None:
    leaf = kept.leaf
    if leaf is None:
        return Step(Act.RENEW, kept.trouble)
    trouble = _invalid(leaf.certificate, now)
    if trouble:
        return Step(Act.RENEW, f"the certificate {trouble}")
    if kept.issuer != kept.signer.certificate:
        return Step(Act.RENEW, "API servers trust the new authority") if _settled(trusted_for) else None
    if now >= _two_thirds(leaf.certificate):
        return Step(Act.RENEW, f"the certificate is valid until {leaf.ends:%Y-%m-%d} only")
    return None


def _of_authority(kept: Kept, now: datetime, *, asked: bool) -> Step | None:
    signer, leaf = kept.signer.certificate, kept.leaf
    if kept.issuer != signer:
        return None  # a rotation is in progress, and waits for trust
    if kept.others:
        done = leaf is not None and now >= leaf.begins + BACKDATED + FINISHED
        return Step(Act.FINISH, "no replica shows a certificate of the old authority") if done else None
    if asked:
        return Step(Act.ROTATE, "the annotation railnet.io/rotate asks for it")
    if now >= _two_thirds(signer):
        return Step(Act.ROTATE, f"the authority is valid until {signer.not_valid_after_utc:%Y-%m-%d} only")
    return None


def _settled(trusted_for: timedelta | None) -> bool:
    return trusted_for is not None and trusted_for >= SETTLED


def _invalid(certificate: x509.Certificate, now: datetime) -> str:
    if now > certificate.not_valid_after_utc:
        return f"expired at {certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    if now < certificate.not_valid_before_utc:
        return f"is not valid before {certificate.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}; is this node's clock right?"
    return ""


def _two_thirds(certificate: x509.Certificate) -> datetime:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return begins + (ends - begins) * 2 / 3
