"""Keeps the certificates: reads the Secret and the webhook configuration, takes the step that is due, finds the trusted authorities.

Any number of replicas do this side by side. Each write names the resourceVersion that the decision is based on: if two replicas
decide at the same time, the API server refuses one of them, and that replica reads again.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from cryptography import x509

from railnet.admission.certificates import authority, ca_bundle, renewal, secret_content
from railnet.admission.certificates.authority import ServerCertificate, UnusableCertificate
from railnet.admission.certificates.cluster_objects import ClusterObjects, Secret
from railnet.admission.certificates.renewal import Act, Step
from railnet.admission.certificates.secret_content import Kept
from railnet.apiserver.client import Absent, Conflict, RequestFailed

_log = logging.getLogger(__name__)
_ATTEMPTS = 5


class SeenCertificates(NamedTuple):
    """The result of a look.

    Attributes:
        leaf: the certificate to show from now on; None if there is none.
        trusted: the authorities that API servers are known to trust: those that all webhooks have had long enough.
        trouble: what failed, in words; empty if nothing failed.
        waits: whether a step waits for API servers to learn of a new authority, so that the next look should come soon.
    """

    leaf: ServerCertificate | None
    trusted: frozenset[x509.Certificate]
    trouble: str = ""
    waits: bool = False


class Keeper:
    """Looks when it is called; two calls must not overlap."""

    def __init__(self, cluster: ClusterObjects, names: tuple[str, ...], now: Callable[[], datetime]) -> None:
        """Keep a certificate for some DNS names; `now` returns the time in UTC."""
        self._cluster, self._names, self._now = cluster, names, now
        self._since: dict[x509.Certificate, datetime] = {}

    def look(self, shown: ServerCertificate | None) -> SeenCertificates:
        """Look, and take the step that is due. Blocks.

        Args:
            shown: the certificate that this replica shows now.

        Raises:
            RequestFailed: the Secret could not be read or written.
        """
        for _ in range(_ATTEMPTS - 1):
            with suppress(Conflict):
                return self._look(shown)
        return self._look(shown)

    def _look(self, shown: ServerCertificate | None) -> SeenCertificates:
        # The configuration is read first, and the patch fails if the configuration has changed since: so a replica never writes
        # an older bundle over a newer one.
        configuration, trouble = self._configuration()
        secret = self._cluster.secret()
        now = self._now()
        kept = self._done(secret, configuration, now)
        if configuration is not None:
            trouble = self._have_trusted(configuration, kept, now)
        shows = renewal.shows(shown, kept, now, self._trusted_for(kept.issuer, now))
        trusted = self._trusted(now)
        waits = (
            kept.issuer != kept.signer.certificate
            or (kept.leaf != shown and not shows)
            or len(trusted) < len(self._since)
        )
        return SeenCertificates(kept.leaf if shows else shown, trusted, trouble, waits)

    def _configuration(self) -> tuple[Mapping[str, Any] | None, str]:
        try:
            return self._cluster.webhooks(), ""
        except Absent as error:
            self._since = {}
            return None, str(error)
        except RequestFailed as error:
            return None, str(error)  # as far as is known, the same authorities are still trusted

    def _done(self, secret: Secret | None, configuration: Mapping[str, Any] | None, now: datetime) -> Kept:
        """Take the step that is due, and return what the Secret then holds."""
        try:
            kept = None if secret is None else secret_content.read(secret.data, self._names)
            trouble = "there is no Secret yet"
        except UnusableCertificate as error:
            kept, trouble = None, str(error)
        if kept is None:
            step = Step(Act.MAKE, trouble)
        else:
            trusted_for = self._trusted_for(kept.signer.certificate, now)
            step = renewal.next_step(kept, now, trusted_for, asked=secret is not None and secret.asked)
        if step.act is Act.KEEP and kept is not None:
            return kept
        after = self._after(step.act, kept, configuration, now)
        self._cluster.write_secret(secret, secret_content.data(after), rotated=step.act in (Act.MAKE, Act.ROTATE))
        _log.info("certificate: %s, because %s", _WORDS[step.act], step.why)
        return after

    def _after(self, act: Act, kept: Kept | None, configuration: Mapping[str, Any] | None, now: datetime) -> Kept:
        if kept is None or act is Act.MAKE:
            signer = authority.make(now)
            # Other replicas show certificates of these authorities until they have read the new Secret.
            others = () if configuration is None else ca_bundle.trusted(configuration, now)
            return Kept(signer, others, authority.sign(signer, self._names, now))
        if act is Act.RENEW:
            return replace(kept, leaf=authority.sign(kept.signer, self._names, now), trouble="")
        if act is Act.ROTATE:
            return replace(kept, signer=authority.make(now), others=(kept.signer.certificate,))
        return replace(kept, others=())

    def _have_trusted(self, configuration: Mapping[str, Any], kept: Kept, now: datetime) -> str:
        """Have all webhooks trust the authorities, and note since when they do; return what failed, in words."""
        operations, trouble = ca_bundle.operations(configuration, kept.authorities), ""
        trusted = ca_bundle.everywhere(configuration)
        if operations:
            try:
                self._cluster.patch_webhooks(operations)
            except Conflict:
                raise
            except RequestFailed as error:
                trouble = str(error)
            else:
                _log.info("caBundle: set in %d webhooks, authorities: %d", len(operations) - 1, len(kept.authorities))
                trusted = frozenset(kept.authorities)
        # A single authority needs no waiting: there is no other certificate to show meanwhile. So it is at nearly every start.
        seen = now - renewal.SETTLED if len(trusted) == 1 else now
        # The earlier of both times: otherwise a clock that was set back would prolong the wait.
        self._since = {certificate: min(self._since.get(certificate, seen), seen) for certificate in trusted}
        return trouble

    def _trusted(self, now: datetime) -> frozenset[x509.Certificate]:
        return frozenset(certificate for certificate, since in self._since.items() if now - since >= renewal.SETTLED)

    def _trusted_for(self, certificate: x509.Certificate | None, now: datetime) -> timedelta | None:
        since = None if certificate is None else self._since.get(certificate)
        return None if since is None else now - since


_WORDS = {
    Act.KEEP: "kept",
    Act.MAKE: "a new authority and a certificate by it",
    Act.RENEW: "a new certificate by the same authority",
    Act.ROTATE: "a new authority, which is trusted beside the old one",
    Act.FINISH: "the old authority is no longer trusted",
}
