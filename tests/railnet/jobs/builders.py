"""Pods and containers with defaults, built from the fields that a test sets."""

from typing import Any

from railnet.objects.pod import Container, Pod


def a_container(**changes: Any) -> Container:
    return Container(**{"name": "main", "env": {}, "env_from": False, "resources": {}, **changes})


def a_pod(*containers: Container, **changes: Any) -> Pod:
    fields = {"name": "p", "namespace": "ml", "labels": {}, "annotations": {}, **changes}
    return Pod(containers=containers or (a_container(),), **fields)
