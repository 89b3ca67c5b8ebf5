"""One AdmissionReview, bytes in and bytes out: what a server calls for each request.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/. It keeps nothing, asks no other server, and
answers a dry run as any other: there are no side effects.
"""

import base64
import json
from typing import Any, Literal, NamedTuple

from admission import explain, patch
from admission.decision import Additions, decide
from admission.policy import Namespace, Policy
from training.pod import parse
from vf.errors import Misconfigured, NotPermitted

# The API server takes objects of 3 MiB (k8s.io/apiserver MaxRequestBodyBytes), which JSON may lengthen; a review has one.
MAX_BYTES = 8 << 20
_API_VERSION = "admission.k8s.io/v1"
_KIND = "AdmissionReview"
_POD = {"group": "", "version": "v1", "kind": "Pod"}
# Of what is "Invalid" kubectl 1.20 says only that: it looks for the fields in question, which a webhook's answer has not.
_FORBIDDEN, _INVALID = (403, "Forbidden"), (400, "BadRequest")
_LONGEST_MESSAGE = 1024


Outcome = Literal["patched", "untouched", "denied"]


class Reviewed(NamedTuple):
    """An answer, and what may be counted and logged of it: `operator` where one is known, `why` of a denial."""

    body: bytes
    outcome: Outcome
    operator: str = ""
    namespace: str = ""
    why: str = ""


class Unreadable(ValueError):
    """This is no AdmissionReview, so it cannot be answered as one. The caller must act: HTTP 400."""


def review(body: bytes, policy: Policy, net1: bool | None = None) -> Reviewed:
    """Answer a review.

    Args:
        body: the request's body, at most `MAX_BYTES`.
        policy: what the administrator settled.
        net1: what the label `railnet.io/net1` of the pod's namespace says; a review does not tell, but the webhook
            configuration can: an entry with a `namespaceSelector` for each value, and a path for each entry.

    Raises:
        Unreadable: the body is too large, or no AdmissionReview of version v1.
    """
    request = _request(body)
    namespace = str(request.get("namespace", ""))
    answer = _answer(request, Namespace(namespace, net1), policy)
    response = {"uid": request["uid"], **answer.response}
    document = {"apiVersion": _API_VERSION, "kind": _KIND, "response": response}
    return Reviewed(json.dumps(document).encode(), answer.outcome, answer.operator, namespace, answer.why)


def _request(body: bytes) -> dict[str, Any]:
    if len(body) > MAX_BYTES:
        raise Unreadable(f"the review has {len(body)} bytes; {MAX_BYTES} is the most that is read")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"the review is not JSON: {error!s:.160}") from None
    if not isinstance(document, dict) or (document.get("apiVersion"), document.get("kind")) != (_API_VERSION, _KIND):
        raise Unreadable(f"the body is no {_KIND} of {_API_VERSION}")
    request = document.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise Unreadable("the AdmissionReview has no request with a uid")
    return request


class _Answer(NamedTuple):
    response: dict[str, Any]
    outcome: Outcome
    operator: str = ""
    why: str = ""


def _answer(request: dict[str, Any], namespace: Namespace, policy: Policy) -> _Answer:
    if request.get("operation") != "CREATE" or request.get("kind") != _POD or request.get("subResource"):
        return _Answer({"allowed": True}, "untouched")
    document: Any = request.get("object")
    try:
        pod = parse(document)
        decision = decide(pod, namespace, policy)
    except NotPermitted as error:
        return _denied(error, *_FORBIDDEN)
    except Misconfigured as error:
        return _denied(error, *_INVALID)
    response: dict[str, Any] = {"allowed": True}
    said = explain.warnings(pod, decision)
    if said:
        response["warnings"] = said
    if not isinstance(decision, Additions):
        return _Answer(response, "untouched", decision.operator)
    operations = patch.operations(document, decision)
    if operations:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(operations).encode()).decode()}
    return _Answer(response, "patched" if operations else "untouched", decision.member.operator.name)


def _denied(error: Exception, code: int, reason: str) -> _Answer:
    message = f"{error!s:.{_LONGEST_MESSAGE}}"
    status = {"status": "Failure", "message": message, "reason": reason, "code": code}
    return _Answer({"allowed": False, "status": status}, "denied", why=message)
