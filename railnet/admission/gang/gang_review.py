"""The answer to one AdmissionReview about a pod's gang, bytes in and bytes out. Like `railnet.admission.review`, it has no side effects."""

from typing import Any

from railnet.admission.gang import gang_explanation, gang_patch
from railnet.admission.gang.engine_choice import GATES, ChosenEngine
from railnet.admission.gang.gang_decision import decide
from railnet.admission.review import ReviewAnswer, Reviewed, denied, is_new_pod, patched, read, reviewed
from railnet.errors import Misconfigured
from railnet.objects.pod import parse

_OPERATOR = "gangs"  # what reviews of gangs are counted as


def review(body: bytes, engine: ChosenEngine = GATES) -> Reviewed:
    """Answer a review of a pod that names a gang; `engine` is the one for new pods.

    The label that switches gangs off in a namespace is not known here: the webhook configuration sends no review of these pods.

    Raises:
        UnreadableReview: as `railnet.admission.review.review`.
    """
    request = read(body)
    return reviewed(request, _answer(request, engine))


def _answer(request: dict[str, Any], engine: ChosenEngine) -> ReviewAnswer:
    if not is_new_pod(request):
        return ReviewAnswer({"allowed": True}, "untouched")
    document: Any = request.get("object")
    try:
        decision = decide(parse(document), document, engine=engine)
    except Misconfigured as error:
        return denied(error)
    response: dict[str, Any] = {"allowed": True}
    warnings = gang_explanation.warnings(decision)
    if warnings:
        response["warnings"] = warnings
    return patched(gang_patch.operations(document, decision), _OPERATOR, response)
