"""A Kubernetes API server with clabernetes' own manager, as plain programs: no kubelet, no pod.

What the manager makes of a Topology can be read; nothing runs it. The server listens on the
loopback interface of the caller's network namespace, on the ports that are usual.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from tests.helpers.waiting import wait_until
from tests.kubernetes.prepare import CLABERNETES, Programs

PORT = 6443
NAMESPACE = "clabernetes"
TOKEN = "rocelab-tests"
CORE = "/api/v1"
_PLURALS = {
    "Namespace": "namespaces",
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "Topology": "topologies",
    "CustomResourceDefinition": "customresourcedefinitions",
}
_ANSWERS_WITHIN_S = 60.0


class RefusedError(Exception):
    """The API server refused a request; the text is its reason."""


@dataclass(frozen=True, slots=True)
class Api:
    """The API server; `manager_log` is what clabernetes' manager says."""

    authority: Path
    manager_log: Path

    def get(self, path: str) -> Any:
        """The object at a path. Raises RefusedError, OSError."""
        return self._ask("GET", path, None, "application/json")

    def apply(self, document: Mapping[str, Any]) -> Any:
        """Server-side apply with strict validation, as `kubectl apply --server-side`. Raises
        RefusedError."""
        metadata = document["metadata"]
        version, namespace = document["apiVersion"], metadata.get("namespace")
        group = f"/apis/{version}" if "/" in version else f"/api/{version}"
        place = f"{group}/namespaces/{namespace}" if namespace else group
        options = urlencode({"fieldManager": "rocelab", "fieldValidation": "Strict"})
        path = f"{place}/{_PLURALS[document['kind']]}/{metadata['name']}?{options}"
        return self._ask("PATCH", path, json.dumps(document), "application/apply-patch+yaml")

    def delete(self, path: str) -> None:
        """Delete the object at a path. Raises RefusedError."""
        self._ask("DELETE", path, None, "application/json")

    @property
    def is_ready(self) -> bool:
        try:
            self.get("/readyz?verbose=0")
        except (OSError, RefusedError):
            return False
        return True

    def _ask(self, method: str, path: str, body: str | None, content: str) -> Any:
        request = urllib.request.Request(
            f"https://127.0.0.1:{PORT}{path}",
            None if body is None else body.encode(),
            {"Authorization": f"Bearer {TOKEN}", "Content-Type": content},
            method=method,
        )
        context = ssl.create_default_context(cafile=str(self.authority))
        # The certificate is the server's own, and it names it.
        context.check_hostname = False
        end = time.monotonic() + _ANSWERS_WITHIN_S
        while True:
            try:
                with urllib.request.urlopen(
                    request, context=context, timeout=_ANSWERS_WITHIN_S
                ) as answer:
                    text = answer.read().decode()
                break
            except urllib.error.HTTPError as error:
                reason = _reason(error.read().decode())
                # A definition that has just changed: the server asks to come back in a second.
                if error.code != HTTPStatus.TOO_MANY_REQUESTS or time.monotonic() > end:
                    raise RefusedError(reason) from None
                time.sleep(float(error.headers.get("Retry-After", 1)))
        return json.loads(text) if text.startswith("{") else text


def _reason(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError):
        return text


@contextmanager
def cluster(programs: Programs, folder: Path) -> Iterator[Api]:
    """An API server with clabernetes' definitions and its manager; all end with the context."""
    certificates = folder / "certificates"
    key, tokens = folder / "accounts.key", folder / "tokens"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    tokens.write_text(f'{TOKEN},admin,admin,"system:masters"\n')
    with ExitStack() as stack:
        store = "http://127.0.0.1:2379"
        stack.enter_context(
            _running(
                folder / "etcd.log",
                programs.etcd,
                *("--data-dir", folder / "etcd", "--listen-client-urls", store),
                *("--advertise-client-urls", store),
                *("--listen-peer-urls", "http://127.0.0.1:2380"),
                # A test's data may be lost.
                "--unsafe-no-fsync",
            )
        )
        server = stack.enter_context(
            _running(
                folder / "kube-apiserver.log",
                programs.api_server,
                *("--etcd-servers", store, "--secure-port", str(PORT)),
                *("--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1"),
                *("--endpoint-reconciler-type", "none"),
                *("--cert-dir", certificates, "--token-auth-file", tokens),
                *("--service-account-issuer", "https://kubernetes.default.svc"),
                *("--service-account-key-file", key, "--service-account-signing-key-file", key),
                *("--authorization-mode", "AlwaysAllow", "--allow-privileged"),
                *("--service-cluster-ip-range", "10.96.0.0/12"),
            )
        )
        api = Api(certificates / "apiserver.crt", folder / "manager.log")

        def answers() -> bool:
            assert server.poll() is None, (folder / "kube-apiserver.log").read_text()[-4000:]
            return api.authority.exists() and api.is_ready

        wait_until(answers, "the API server answers")
        for file in sorted(programs.definitions.glob("*.yaml")):
            api.apply(yaml.safe_load(file.read_text()))
        _prepare_namespace(api)
        stack.enter_context(_managed(programs.manager, folder, api))
        yield api


def _prepare_namespace(api: Api) -> None:
    """What clabernetes' Helm chart makes before its manager starts."""

    def part(kind: str, name: str) -> dict[str, object]:
        metadata = {"name": name, "namespace": NAMESPACE}
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata}

    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    api.apply(part("Secret", "clabernetes-certificate"))
    api.apply(part("ConfigMap", "clabernetes-config"))


@contextmanager
def _managed(manager: Path, folder: Path, api: Api) -> Iterator[None]:
    """clabernetes' manager in a root folder of its own, where it finds its account."""
    root = folder / "manager"
    account = root / "var/run/secrets/kubernetes.io/serviceaccount"
    account.mkdir(parents=True)
    (account / "token").write_text(TOKEN)
    (account / "namespace").write_text(NAMESPACE)
    (account / "ca.crt").write_bytes(api.authority.read_bytes())
    (root / "tmp").mkdir()
    os.link(manager, root / "manager")
    environment = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(PORT),
        "POD_NAMESPACE": NAMESPACE,
        "MANAGER_NAMESPACE": NAMESPACE,
        "APP_NAME": "clabernetes",
        "LAUNCHER_IMAGE": f"ghcr.io/srl-labs/clabernetes/clabernetes-launcher:{CLABERNETES[1:]}",
    }
    command = ("chroot", root, "/manager", "run")
    log = api.manager_log
    # As the chart's init container: it makes the certificates.
    with _running(log, *command, "--initializer", environment=environment) as initializer:
        assert initializer.wait(_ANSWERS_WITHIN_S) == 0, log.read_text()[-4000:]
    with _running(log, *command, environment=environment):
        yield


@contextmanager
def _running(
    log: Path, *command: str | Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    with (
        log.open("ab") as output,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=None if environment is None else {**os.environ, **environment},
        ) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
