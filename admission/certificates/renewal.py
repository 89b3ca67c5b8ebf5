"""What is to be done about the certificates, and when: decisions over time, without a clock.

A rotation of the authority has three steps, each by whichever replica comes first. ROTATE writes a new authority beside the
old one; the leaf stays. When all webhooks have trusted both for a while, RENEW signs a leaf by the new one. An hour later,
when every replica has long shown it, FINISH forgets the old one. What step a rotation is at, the certificates tell.
"""

from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple

from cryptography import x509

from admission.certificates.authority import BACKDATED, Leaf, signed_by
from admission.certificates.secret_content import Kept

# How long API servers may take to hear of a changed webhook configuration; they watch it, so far less in truth.
SETTLED = timedelta(seconds=5)
FINISHED = timedelta(hours=1)


class Act(Enum):
    """One step."""

    KEEP = "keep"
    MAKE = "make"  # all of it anew
    RENEW = "renew"  # a leaf by the present signer
    ROTATE = "rotate"  # a new signer, trusted besides the old one
    FINISH = "finish"  # only the signer is trusted from now on


class Step(NamedTuple):
    """A step, and why it is taken: a clause for the log."""

    act: Act
    why: str = ""


def next_step(kept: Kept, now: datetime, trusted_for: timedelta | None, *, asked: bool = False) -> Step:
    """Decide what is to be done now.

    Args:
        kept: what the Secret holds.
        now: the time.
        trusted_for: how long this replica has seen the signer in all webhooks; None if it is not there.
        asked: whether somebody asked for a new authority.
    """
    trouble = _invalid(kept.signer.certificate, now)
    if trouble:
        return Step(Act.MAKE, f"its authority {trouble}")
    return _of_leaf(kept, now, trusted_for) or _of_authority(kept, now, asked=asked) or Step(Act.KEEP)


def shows(shown: Leaf | None, kept: Kept, now: datetime, trusted_for: timedelta | None) -> bool:
    """Decide whether a replica shows the leaf that is kept, in place of the one that it shows.

    Not before API servers trust who signed it, unless what it shows now is of no use, or of the same signer.

    Args:
        shown: what it shows now.
        kept: what the Secret holds.
        now: the time.
        trusted_for: as `next_step`, but of the leaf's issuer.
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
        return Step(Act.RENEW, "the new authority is trusted by now") if _settled(trusted_for) else None
    if now >= _two_thirds(leaf.certificate):
        return Step(Act.RENEW, f"the certificate is valid until {leaf.ends:%Y-%m-%d} only")
    return None


def _of_authority(kept: Kept, now: datetime, *, asked: bool) -> Step | None:
    signer, leaf = kept.signer.certificate, kept.leaf
    if kept.issuer != signer:
        return None  # a rotation waits for trust
    if kept.others:
        done = leaf is not None and now >= leaf.begins + BACKDATED + FINISHED
        return Step(Act.FINISH, "nobody shows a certificate of the old authority any more") if done else None
    if asked:
        return Step(Act.ROTATE, "somebody asked for it")
    if now >= _two_thirds(signer):
        return Step(Act.ROTATE, f"the authority is valid until {signer.not_valid_after_utc:%Y-%m-%d} only")
    return None


def _settled(trusted_for: timedelta | None) -> bool:
    return trusted_for is not None and trusted_for >= SETTLED


def _invalid(certificate: x509.Certificate, now: datetime) -> str:
    if now > certificate.not_valid_after_utc:
        return f"has expired at {certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    if now < certificate.not_valid_before_utc:
        return f"is not valid before {certificate.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}; is this node's clock right?"
    return ""


def _two_thirds(certificate: x509.Certificate) -> datetime:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return begins + (ends - begins) * 2 / 3
