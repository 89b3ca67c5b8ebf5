"""Certificates: make an authority, sign with it, and parse certificates and keys. New keys are ECDSA P-256.

Source of the fields: RFC 5280, section 4.2, and the demands of Go's crypto/x509, by which the API server verifies.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# A year, so that each cluster rotates its authority every eight months: a rotation once in ten years would be untried.
AUTHORITY_LIFETIME = timedelta(days=365)
LEAF_LIFETIME = timedelta(days=90)
BACKDATED = timedelta(hours=1)  # the clocks of API servers may be behind
_MAX_PEM = 1 << 20  # the largest Secret


class UnusableCertificate(ValueError):
    """The text is not a certificate or key that can be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate that signs others, and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """A server's certificate and key.

    Attributes:
        chain: PEM of the certificate, and of the intermediate certificates that came with it.
        key: PEM of the key.
    """

    certificate: x509.Certificate
    chain: bytes
    key: bytes

    @property
    def begins(self) -> datetime:
        """The time from which the certificate is valid."""
        return self.certificate.not_valid_before_utc

    @property
    def ends(self) -> datetime:
        """The time until which the certificate is valid."""
        return self.certificate.not_valid_after_utc

    def valid(self, now: datetime) -> bool:
        """Return whether the certificate is valid now."""
        return self.begins <= now <= self.ends

    def lacks(self, names: Iterable[str]) -> list[str]:
        """Return those of some DNS names that the certificate does not hold."""
        has = _dns_names(self.certificate)
        return [name for name in names if name not in has]


def make(now: datetime) -> Authority:
    """Make an authority. Each has a name of its own, so that an old and a new authority cannot be confused."""
    key = ec.generate_private_key(ec.SECP256R1())
    number = f"{x509.random_serial_number():x}"[:8]
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"railnet-admission-ca-{number}")])
    certificate = (
        _begun(name, name, key.public_key(), now, now + AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def sign(authority: Authority, names: Iterable[str], now: datetime) -> ServerCertificate:
    """Make a server's certificate for some DNS names; it expires no later than its authority."""
    key, names = ec.generate_private_key(ec.SECP256R1()), list(names)
    signer = authority.certificate
    certificate = (
        _begun(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]),
            signer.subject,
            key.public_key(),
            now,
            min(now + LEAF_LIFETIME, signer.not_valid_after_utc),
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return ServerCertificate(certificate, certificate_pem([certificate]), key_pem(key))


def signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Return whether an authority has signed a certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def belongs(key: PrivateKeyTypes, certificate: x509.Certificate) -> bool:
    """Return whether a key belongs to a certificate."""
    der = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return key.public_key().public_bytes(*der) == certificate.public_key().public_bytes(*der)


def signs(certificate: x509.Certificate) -> bool:
    """Return whether a certificate is an authority's."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def parse_certificates(pem: bytes) -> list[x509.Certificate]:
    """Parse certificates in PEM.

    Raises:
        UnusableCertificate: the text holds no certificate, or one that cannot be read.
    """
    if len(pem) > _MAX_PEM:
        raise UnusableCertificate(f"has {len(pem)} bytes, and may have {_MAX_PEM}")
    try:
        certificates = x509.load_pem_x509_certificates(pem)
        for certificate in certificates:
            _look_through(certificate)
    except Exception as error:  # noqa: BLE001 - ValueError, UnsupportedAlgorithm, DuplicateExtension, and errors of a later version
        raise UnusableCertificate(f"holds no certificates in PEM: {error!s:.160}") from None
    return certificates


def _look_through(certificate: x509.Certificate) -> None:
    """Read every field that is used later: `cryptography` parses a field when it is first read, and may raise then."""
    certificate.public_key()
    _ = certificate.extensions, certificate.not_valid_before_utc, certificate.not_valid_after_utc
    _dns_names(certificate)


def parse_key(pem: bytes) -> PrivateKeyTypes:
    """Parse a private key of any kind.

    Raises:
        UnusableCertificate: the text is not a private key.
    """
    try:
        return load_pem_private_key(pem[:_MAX_PEM], password=None)
    except Exception as error:  # noqa: BLE001 - ValueError, TypeError, UnsupportedAlgorithm, and errors of a later version
        raise UnusableCertificate(f"holds no private key in PEM: {type(error).__name__}") from None


def certificate_pem(certificates: Iterable[x509.Certificate]) -> bytes:
    """Return certificates as PEM."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key as PEM."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(end)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _dns_names(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return names.get_values_for_type(x509.DNSName)
