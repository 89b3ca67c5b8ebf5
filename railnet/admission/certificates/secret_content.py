"""The entries of the Secret: the trusted authorities, the key of the signing authority, and the servers' certificate.

ca.crt   the authorities: one, or two during a rotation and for an hour after it
ca.key   the key of the signing authority, which is the newest
tls.crt  the servers' certificate, signed by one of the authorities
tls.key  the key of the servers' certificate
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from railnet.admission.certificates.authority import (
    Authority,
    ServerCertificate,
    UnusableCertificate,
    belongs,
    certificate_pem,
    key_pem,
    parse_certificates,
    parse_key,
    signed_by,
    signs,
)

_Parsed = TypeVar("_Parsed")
_AUTHORITIES, _AUTHORITY_KEY, _CHAIN, _KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"


@dataclass(frozen=True, slots=True)
class Kept:
    """The entries of the Secret, parsed.

    Attributes:
        signer: the authority that signs new certificates.
        others: further authorities that are trusted.
        leaf: the servers' certificate; None if it cannot be used, and then `trouble` says why.
    """

    signer: Authority
    others: tuple[x509.Certificate, ...]
    leaf: ServerCertificate | None
    trouble: str = ""

    @property
    def authorities(self) -> tuple[x509.Certificate, ...]:
        """All trusted authorities, in the order of the entry."""
        return (self.signer.certificate, *self.others)

    @property
    def issuer(self) -> x509.Certificate | None:
        """The authority that signed the servers' certificate."""
        if self.leaf is None:
            return None
        leaf = self.leaf.certificate
        return next((authority for authority in self.authorities if signed_by(leaf, authority)), None)


def read(data: Mapping[str, bytes], names: tuple[str, ...]) -> Kept:
    """Read the entries; the servers' certificate must hold some DNS names.

    Raises:
        UnusableCertificate: the authority cannot be used. Of a certificate that cannot be used, `Kept.trouble` says why.
    """
    authorities = _parsed(data, _AUTHORITIES, parse_certificates)
    key = _parsed(data, _AUTHORITY_KEY, parse_key)
    signer = next((authority for authority in authorities if signs(authority) and belongs(key, authority)), None)
    if signer is None or not isinstance(key, EllipticCurvePrivateKey):
        raise UnusableCertificate(f"{_AUTHORITY_KEY} is the key of no authority in {_AUTHORITIES}")
    kept = Kept(Authority(signer, key), tuple(authority for authority in authorities if authority is not signer), None)
    try:
        leaf = parse_leaf(data)
    except UnusableCertificate as error:
        return replace(kept, trouble=str(error))
    lacks = leaf.lacks(names)
    if lacks:
        return replace(kept, trouble=f"{_CHAIN} is not for {', '.join(lacks)}")
    if not any(signed_by(leaf.certificate, authority) for authority in authorities):
        return replace(kept, trouble=f"{_CHAIN} is signed by no authority in {_AUTHORITIES}")
    return replace(kept, leaf=leaf)


def parse_leaf(data: Mapping[str, bytes]) -> ServerCertificate:
    """Read a server's certificate and key, `tls.crt` and `tls.key`.

    Raises:
        UnusableCertificate: one of them cannot be read, or the key is not the certificate's.
    """
    certificates = _parsed(data, _CHAIN, parse_certificates)
    key = _parsed(data, _KEY, parse_key)
    if not belongs(key, certificates[0]):
        raise UnusableCertificate(f"{_KEY} is not the key of the first certificate in {_CHAIN}")
    return ServerCertificate(certificates[0], data[_CHAIN], data[_KEY])


def _parsed(data: Mapping[str, bytes], name: str, parse: Callable[[bytes], _Parsed]) -> _Parsed:
    if not data.get(name):
        raise UnusableCertificate(f"{name} is missing")
    try:
        return parse(data[name])
    except UnusableCertificate as error:
        raise UnusableCertificate(f"{name} {error}") from None


def data(kept: Kept) -> dict[str, bytes]:
    """Return the entries to write into the Secret."""
    leaf = kept.leaf
    return {
        _AUTHORITIES: certificate_pem(kept.authorities),
        _AUTHORITY_KEY: key_pem(kept.signer.key),
        _CHAIN: b"" if leaf is None else leaf.chain,
        _KEY: b"" if leaf is None else leaf.key,
    }
