"""Reads and writes the ConfigMap that says which rails of the cluster reach each other."""

from datetime import datetime
from http import HTTPStatus

from railnet.apiserver.client import Absent, ApiServer, Conflict, RequestFailed
from railnet.apiserver.request import ApiObject, create, get, merge_patch
from railnet.fabric.published_reach import NAME, NAMESPACE, UNPUBLISHED, PublishedReach, Reach, config_map, parse

CONFIG_MAP = ApiObject("v1", "configmaps", NAME, NAMESPACE)


def read(api: ApiServer) -> PublishedReach:
    """Return what is published; nothing if nothing is, or if the user may not read it.

    Raises:
        RequestFailed: the API server does not answer.
    """
    try:
        return parse(api.send(get(CONFIG_MAP)))
    except Absent:
        return UNPUBLISHED
    except RequestFailed as error:
        if error.status == HTTPStatus.FORBIDDEN:
            return UNPUBLISHED
        raise


def publish(api: ApiServer, reach: Reach, moment: datetime) -> None:
    """Replace what is published.

    Raises:
        RequestFailed: the user may not write it, or the API server does not answer.
    """
    wanted = config_map(reach, moment)
    try:
        api.send(merge_patch(CONFIG_MAP, wanted))
    except Absent:
        try:
            api.send(create(CONFIG_MAP, wanted))
        except Conflict:  # another run was first
            api.send(merge_patch(CONFIG_MAP, wanted))
