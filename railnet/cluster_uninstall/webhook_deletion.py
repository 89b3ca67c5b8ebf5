"""Deletes the webhook configuration: a training pod that is made meanwhile would get a request that no node can serve any more."""

from railnet.admission import webhook_scope
from railnet.apiserver.client import Absent, ApiServer
from railnet.apiserver.request import ApiObject, delete, get

_WEBHOOK = ApiObject("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", webhook_scope.NAME)


def delete_webhook(api: ApiServer) -> bool:
    """Delete the webhook configuration; return False if there is none, as after an earlier run.

    Raises:
        RequestFailed: as `ApiServer.send`.
    """
    try:
        api.send(delete(_WEBHOOK, api.send(get(_WEBHOOK))["metadata"]["uid"]))
    except Absent:
        return False
    return True
