"""The answer to one AdmissionReview, bytes in and bytes out. The HTTPS server calls it for each request.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/. A review stores nothing and sends no request to another
server. What the caller must keep of it, a host port that was given, is a part of the answer; of a dry run nothing is to be kept.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from railnet.admission import explanation, patch
from railnet.admission.decision import Additions, ClaimedVfs, FreePort, decide
from railnet.admission.review_configuration import Namespace, Policy
from railnet.errors import Misconfigured, NotPermitted, NotReady
from railnet.objects.pod import parse

# The API server accepts objects of 3 MiB (k8s.io/apiserver MaxRequestBodyBytes). A review contains one, and JSON may make it longer.
MAX_BYTES = 8 << 20
# Each value of a JSON document follows a comma or a bracket; a small one takes 3 bytes of the body, 70 of memory and a microsecond. A pod of
# 7 KiB has 300 of them, and etcd stores no object of more than 1.5 MiB.
MAX_VALUES = 100_000
_MAX_NAMESPACE = 63  # RFC 1123 label: k8s.io/apimachinery/pkg/util/validation, DNS1123LabelMaxLength
_MAX_UID = 128  # the answer repeats it; the API server's has 36 characters
_MAX_DIGITS = 64  # Kubernetes has numbers of 64 bits
_API_VERSION = "admission.k8s.io/v1"
_KIND = "AdmissionReview"
_POD = {"group": "", "version": "v1", "kind": "Pod"}
# Not the reason "Invalid": kubectl looks for the names of fields in its details, which a webhook's answer does not have.
_FORBIDDEN, _INVALID, _UNAVAILABLE = (403, "Forbidden"), (400, "BadRequest"), (503, "ServiceUnavailable")
_STATUS: dict[type[Exception], tuple[int, str]] = {
    NotPermitted: _FORBIDDEN,
    Misconfigured: _INVALID,
    NotReady: _UNAVAILABLE,
}
_MAX_MESSAGE = 1024


Outcome = Literal["patched", "untouched", "denied"]


class Reviewed(NamedTuple):
    """An answer, and what may be counted and logged of it: `operator` is empty if it is unknown, `reason` is that of a denial.

    `host_port` is the port that the pod has been given, unless the review is of a dry run; 0 if none.
    """

    body: bytes
    outcome: Outcome
    operator: str = ""
    namespace: str = ""
    reason: str = ""
    host_port: int = 0


class UnreadableReview(ValueError):
    """The body is not an AdmissionReview, so it cannot be answered by one. The caller answers HTTP 400."""


def review(
    body: bytes,
    policy: Policy,
    net1: bool | None = None,
    free_port: FreePort | None = None,
    claimed: ClaimedVfs | None = None,
    *,
    sticky: bool = False,
) -> Reviewed:
    """Answer a review of a pod.

    Args:
        body: the request's body, at most `MAX_BYTES`.
        policy: what the administrator configured.
        net1: the label `railnet.io/net1` of the pod's namespace. A review does not contain it. The request's path says it: the webhook
            configuration has an entry for each value, with a `namespaceSelector` and a path.
        free_port: returns a host port for a pod, and does not hold it; None if host-network mode is switched off.
        claimed: returns how many VFs a pod asks for by claims; None where claims are not watched.
        sticky: whether the label `railnet.io/sticky` of the pod's namespace is "true"; the path says it, too.

    Raises:
        UnreadableReview: the body is too large, has too many values, or is not an AdmissionReview of version v1.
    """
    request = read(body)
    answer = _answer(request, Namespace(namespace_of(request), net1, sticky), policy, free_port, claimed)
    # The API server says of each review whether it is of a dry run.
    return reviewed(request, answer if request.get("dryRun", False) is False else answer._replace(host_port=0))


def namespace_of(request: Mapping[str, Any]) -> str:
    """Return the namespace of a request's object; of a longer text than a namespace has, the beginning."""
    return str(request.get("namespace", ""))[:_MAX_NAMESPACE]


def reviewed(request: Mapping[str, Any], answer: "ReviewAnswer") -> Reviewed:
    """Return the AdmissionReview that answers a request."""
    response = {"uid": request["uid"], **answer.response}
    document = {"apiVersion": _API_VERSION, "kind": _KIND, "response": response}
    return Reviewed(
        json.dumps(document).encode(),
        answer.outcome,
        answer.operator,
        namespace_of(request),
        answer.reason,
        answer.host_port,
    )


def read(body: bytes) -> dict[str, Any]:
    """Return the request of a review.

    Raises:
        UnreadableReview: as `review`.
    """
    if len(body) > MAX_BYTES:
        raise UnreadableReview(f"the review has {len(body)} bytes; at most {MAX_BYTES} are read")
    values = sum(map(body.count, (b",", b"[", b"{")))
    if values > MAX_VALUES:
        raise UnreadableReview(f"the review has {values} commas and brackets; at most {MAX_VALUES} are read")
    try:
        document = json.loads(body, parse_int=_whole_number, parse_float=_number)
    except (ValueError, RecursionError) as error:
        raise UnreadableReview(f"the review is not JSON: {error!s:.160}") from None
    if not isinstance(document, dict) or (document.get("apiVersion"), document.get("kind")) != (_API_VERSION, _KIND):
        raise UnreadableReview(f"the body is not an {_KIND} of {_API_VERSION}")
    request = document.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise UnreadableReview("the AdmissionReview has no request with a uid")
    if len(request["uid"]) > _MAX_UID:
        raise UnreadableReview(f"the request's uid has {len(request['uid'])} characters; at most {_MAX_UID} are read")
    return request


def _whole_number(text: str) -> int:
    return int(_short(text))


def _number(text: str) -> float:
    return float(_short(text))


def _short(text: str) -> str:
    """Return a number's text; a long one takes time by the square of its length."""
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number has {len(text)} digits; at most {_MAX_DIGITS} are read")
    return text


class ReviewAnswer(NamedTuple):
    """The answer to a review: its `response` without the uid, and what is counted and logged."""

    response: dict[str, Any]
    outcome: Outcome
    operator: str = ""
    reason: str = ""
    host_port: int = 0


def is_new_pod(request: Mapping[str, Any]) -> bool:
    """Return whether a request creates a pod."""
    return request.get("operation") == "CREATE" and request.get("kind") == _POD and not request.get("subResource")


def _answer(
    request: dict[str, Any],
    namespace: Namespace,
    policy: Policy,
    free_port: FreePort | None,
    claimed: ClaimedVfs | None,
) -> ReviewAnswer:
    if not is_new_pod(request):
        return ReviewAnswer({"allowed": True}, "untouched")
    document: Any = request.get("object")
    try:
        pod = parse(document)._replace(namespace=namespace.name)
        decision = decide(pod, namespace, policy, free_port, claimed)
    except (NotPermitted, Misconfigured, NotReady) as error:
        return denied(error)
    response: dict[str, Any] = {"allowed": True}
    warnings = explanation.warnings(pod, decision)
    if warnings:
        response["warnings"] = warnings
    if not isinstance(decision, Additions):
        return ReviewAnswer(response, "untouched", decision.operator)
    answer = patched(patch.operations(document, decision), decision.member.operator.name, response)
    return answer if decision.host is None else answer._replace(host_port=decision.host.port)


def patched(operations: list[patch.Operation], operator: str, response: Mapping[str, Any]) -> ReviewAnswer:
    """Answer by a JSON Patch; an empty one leaves the object as it is."""
    if not operations:
        return ReviewAnswer(dict(response), "untouched", operator)
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return ReviewAnswer({**response, "patchType": "JSONPatch", "patch": encoded}, "patched", operator)


def denied(error: NotPermitted | Misconfigured | NotReady) -> ReviewAnswer:
    """Answer by a refusal: 403, 400, or 503 for what may be admitted later."""
    code, reason = _STATUS[type(error)]
    message = f"{error!s:.{_MAX_MESSAGE}}"
    status = {"status": "Failure", "message": message, "reason": reason, "code": code}
    return ReviewAnswer({"allowed": False, "status": status}, "denied", reason=message)
