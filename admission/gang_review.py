"""The answer to one AdmissionReview about a pod's gang, bytes in and bytes out. Like `admission.review`, it has no side effects."""

from typing import Any

from admission import gang_explanation, gang_patch
from admission.gang_decision import decide
from admission.review import Answer, Reviewed, denied, is_new_pod, patched, read, reviewed
from training.kubernetes_version import KubernetesVersion
from training.pod import parse
from vf.errors import Misconfigured

_OPERATOR = "gangs"  # what reviews of gangs are counted as


def review(body: bytes, kubernetes: KubernetesVersion | None) -> Reviewed:
    """Answer a review of a pod that names a gang. `kubernetes` is the API server's version; None while it is not known.

    The label that switches gangs off in a namespace is not known here: the webhook configuration sends no review of these pods.

    Raises:
        UnreadableReview: as `admission.review.review`.
    """
    request = read(body)
    return reviewed(request, _answer(request, kubernetes))


def _answer(request: dict[str, Any], kubernetes: KubernetesVersion | None) -> Answer:
    if not is_new_pod(request):
        return Answer({"allowed": True}, "untouched")
    document: Any = request.get("object")
    try:
        decision = decide(parse(document), document, kubernetes)
    except Misconfigured as error:
        return denied(error)
    response: dict[str, Any] = {"allowed": True}
    warnings = gang_explanation.warnings(decision)
    if warnings:
        response["warnings"] = warnings
    return patched(gang_patch.operations(document, decision), _OPERATOR, response)
