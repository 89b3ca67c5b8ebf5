"""The transport of a command that a person runs: the API server and the rights that a kubeconfig names.

Source: kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig. The `kubernetes` package reads the file: exec
plugins, client certificates, tokens, proxies. It makes no request of its own here.
"""

import logging
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml
from kubernetes.client import ApiClient, Configuration
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.kube_config import list_kube_config_contexts, load_kube_config
from urllib3.exceptions import DependencyWarning, HTTPError

from railnet.apiserver.cluster_name import ClusterName, server_of
from railnet.apiserver.kubernetes_package_transport import PooledTransport

_CONNECT_SECONDS, _ANSWER_SECONDS = 5.0, 30.0  # a person may be far from the cluster, and wait for a long list
_BEARER = "Bearer "


class NoKubeconfig(Exception):
    """There is no kubeconfig, or it names no API server; the message says what to do."""


def files(environ: Mapping[str, str], chosen: str | None) -> str:
    """Return the files of the kubeconfig as the package takes them: the chosen one, else `KUBECONFIG`'s, else kubectl's.

    Raises:
        NoKubeconfig: none of the files exists.
    """
    names = chosen or environ.get("KUBECONFIG") or str(Path(environ.get("HOME") or "/") / ".kube" / "config")
    if not any(Path(name).expanduser().exists() for name in names.split(os.pathsep) if name):
        raise NoKubeconfig(f"there is no kubeconfig {names}; name one with --kubeconfig, or in KUBECONFIG")
    return names


class KubeconfigTransport(PooledTransport):
    """Sends with the rights of a context, through one pool of connections; threads may share it."""

    def __init__(self, names: str, context: str | None = None) -> None:
        """Read the files, which `files` found; `context` is the one to use, None for the current one.

        Raises:
            NoKubeconfig: they cannot be read, have no such context, or a plugin gives no credentials; or the proxy cannot be used.
        """
        super().__init__(_CONNECT_SECONDS, _ANSWER_SECONDS)
        self._names, self._lock = names, threading.Lock()
        configuration = Configuration()
        with self._reading():
            load_kube_config(names, context, client_configuration=configuration, persist_config=False)  # type: ignore[no-untyped-call]
        if not configuration.host.startswith(("https://", "http://")):
            raise NoKubeconfig(f"kubeconfig {names} names the API server {configuration.host!r:.80}, which is no URL")
        if not configuration.api_key.get("BearerToken", _BEARER).startswith(_BEARER):
            raise NoKubeconfig(f"kubeconfig {names} has a user name and a password; Kubernetes takes none")
        configuration.retries = False  # the caller decides whether a request is sent again
        self._configuration = configuration
        self.cluster = ClusterName(server_of(configuration.host), context or self._current_context())
        self._client = _client(configuration, names)

    def token(self) -> str:
        """Return the token of the next request, a new one if it has expired; empty if a certificate names the user.

        Raises:
            OSError: the plugin gives no new token.
        """
        with self._lock:
            try:
                # The package's hook asks the exec plugin again when its token has expired.
                api_key = self._configuration.get_api_key_with_prefix("BearerToken") or ""
            except ConfigException as error:
                raise OSError(f"kubeconfig {self._names} gives no token any more: {error}") from None
        return api_key.removeprefix(_BEARER)

    def _current_context(self) -> str:
        try:
            _, current = list_kube_config_contexts(self._names)  # type: ignore[no-untyped-call]
            return str(current["name"])
        except (ConfigException, OSError, KeyError, TypeError, ValueError):
            return ""  # the file has changed since it was read; a report without the name is as good

    def _current(self) -> ApiClient:
        return self._client

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Name the files in each failure, also in those that the package only logs: an exec plugin that fails."""
        handler = _Said()
        root = logging.getLogger()
        root.addHandler(handler)
        try:
            yield
        except (ConfigException, yaml.YAMLError, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            why = " ".join(str(error).split())  # PyYAML's are several lines
            raise NoKubeconfig(
                f"kubeconfig {self._names} cannot be used: {why:.400}; repair it, or choose another file with --kubeconfig or a context with --context"
            ) from None
        finally:
            root.removeHandler(handler)
        if handler.errors:
            raise NoKubeconfig(
                f"kubeconfig {self._names} gives no credentials: {'; '.join(handler.errors):.400}; look at the program that its user names under "
                "exec, or choose another context with --context"
            )


def _client(configuration: Configuration, names: str) -> ApiClient:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DependencyWarning)  # the error below says it
            return ApiClient(configuration)
    except OSError as error:
        raise NoKubeconfig(f"kubeconfig {names}: its certificates cannot be read: {error}") from None
    except ModuleNotFoundError as error:  # urllib3 imports it for a proxy of SOCKS alone
        raise NoKubeconfig(
            f"the proxy to the API server needs the Python package PySocks ({error}): run pip install pysocks, or name a proxy of HTTP"
        ) from None
    except (HTTPError, ValueError) as error:  # the proxy itself may have a password, so it is not shown
        raise NoKubeconfig(
            f"the proxy to the API server cannot be used: {error!s:.200}; HTTPS_PROXY, or proxy-url of the kubeconfig, should be a URL such as "
            "http://proxy.example:3128"
        ) from None


class _Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.errors.append(record.getMessage())
