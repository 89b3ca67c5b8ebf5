"""What the API server asks about pods that anybody may have written."""

import base64
import json
from contextlib import suppress

from admission.policy import Policy
from admission.review import MAX_BYTES, Unreadable, review
from tests.fuzz.parser import Parser


def admission_review(data: bytes) -> None:
    """Judge an AdmissionReview: it is answered, with its uid, and with a patch that is one."""
    if not data:
        with suppress(Unreadable):
            raise AssertionError(review(bytes(MAX_BYTES + 1), Policy()))
    for net1 in (None, True):
        answer = json.loads(review(data, Policy(), net1).body)
        response = answer["response"]
        assert isinstance(response["uid"], str)
        assert response["allowed"] in (True, False)
        if "patch" in response:
            assert all(
                step["op"] in ("add", "replace", "test", "remove")
                for step in json.loads(base64.b64decode(response["patch"]))
            )


PARSERS = (
    Parser(
        "admission",
        admission_review,
        (Unreadable,),
        {"admission.review": ()},
    ),
)
