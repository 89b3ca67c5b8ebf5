"""The answer to one AdmissionReview about a gang's Job, bytes in and bytes out. Like `railnet.admission.review`, it has no side effects.

No Job is ever refused: without the rule Railnet does not move its gang, and that is all.
"""

from typing import Any

from railnet.admission.explanation import MAX_WARNING
from railnet.admission.gang import job_decision
from railnet.admission.review import ReviewAnswer, Reviewed, namespace_of, patched, read, reviewed

_JOB = {"group": "batch", "version": "v1", "kind": "Job"}
_OPERATOR = "gangs"  # what reviews of gangs are counted as


def review(body: bytes) -> Reviewed:
    """Answer a review of a Job whose pod template names a gang.

    Raises:
        UnreadableReview: as `railnet.admission.review.review`.
    """
    request = read(body)
    return reviewed(request, _answer(request))


def _answer(request: dict[str, Any]) -> ReviewAnswer:
    new = request.get("operation") == "CREATE" and request.get("kind") == _JOB and not request.get("subResource")
    if not new:
        return ReviewAnswer({"allowed": True}, "untouched")
    job: Any = request.get("object")
    decision = job_decision.decide(job, namespace_of(request))
    response: dict[str, Any] = {"allowed": True}
    if decision.obstacle:
        text = f"Railnet will not move this gang, nor preempt it, because its Job {decision.obstacle}"
        response["warnings"] = [f"{text:.{MAX_WARNING}}"]
    return patched(job_decision.operations(job, decision), _OPERATOR, response)
