"""The authorities that API servers trust for the webhooks: the `caBundle` of each entry of the webhook configuration.

Source: kubernetes.io/docs/reference/kubernetes-api/extend-resources/mutating-webhook-configuration-v1.
"""

import base64
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from cryptography import x509

from railnet.admission.certificates.authority import certificate_pem, parse_certificates, signs

Operation = dict[str, Any]
_MOST = 16  # authorities that are kept; more exist only if the Secret is lost again and again within seconds


def operations(configuration: Mapping[str, Any], authorities: Iterable[x509.Certificate]) -> list[Operation]:
    """Return the JSON patch by which every webhook trusts some authorities and no others; empty if all do already.

    The patch fails as a whole if the configuration has another resourceVersion than the one that was read.
    """
    bundle = base64.b64encode(certificate_pem(authorities)).decode()
    changes = [
        {"op": "add", "path": f"/webhooks/{position}/clientConfig/caBundle", "value": bundle}
        for position, webhook in enumerate(_webhooks(configuration))
        if _client(webhook).get("caBundle") != bundle
    ]
    version = configuration["metadata"]["resourceVersion"]
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *changes] if changes else []


def trusted(configuration: Mapping[str, Any], now: datetime) -> tuple[x509.Certificate, ...]:
    """Return the valid authorities that at least one webhook trusts: newest first, sixteen at most."""
    authorities = {
        authority
        for webhook in _webhooks(configuration)
        for authority in _authorities(_client(webhook).get("caBundle"))
        if authority.not_valid_before_utc <= now <= authority.not_valid_after_utc
    }
    return tuple(sorted(authorities, key=lambda authority: authority.not_valid_before_utc, reverse=True)[:_MOST])


def everywhere(configuration: Mapping[str, Any]) -> frozenset[x509.Certificate]:
    """Return the authorities that all webhooks trust; empty if there is no webhook."""
    each = [frozenset(_authorities(_client(webhook).get("caBundle"))) for webhook in _webhooks(configuration)]
    return frozenset.intersection(*each) if each else frozenset()


def _webhooks(configuration: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return configuration.get("webhooks") or []


def _client(webhook: Mapping[str, Any]) -> Mapping[str, Any]:
    return webhook.get("clientConfig") or {}


def _authorities(bundle: Any) -> list[x509.Certificate]:
    try:
        pem = base64.b64decode(bundle or "", validate=True)
        return [certificate for certificate in parse_certificates(pem) if signs(certificate)]
    except (ValueError, TypeError):  # no base64, or Unusable
        return []  # a placeholder
