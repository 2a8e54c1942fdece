"""Builds what the tests with Kubernetes need: etcd, its API server, and clabernetes' manager.

`python -m tests.kubernetes.prepare` builds those that are missing; the first time takes some ten
minutes of two CPUs. Nothing is installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.helpers.goprograms import go_module, go_program

KUBERNETES = "v1.34.1"
ETCD = "v3.6.4"
CLABERNETES = "v0.6.0"
HOW = "there is no Go to build Kubernetes with: install Go and run `make test-kubernetes` again"
_CLABERNETES_MODULE = "github.com/srl-labs/clabernetes"


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs, and the folder of clabernetes' custom resource definitions."""

    etcd: Path
    api_server: Path
    manager: Path
    definitions: Path


def programs() -> Programs:
    """Build what is missing. Raises SystemExit without Go."""
    source = Path(go_module(_CLABERNETES_MODULE, CLABERNETES, HOW)["Dir"])
    return Programs(
        etcd=go_program("etcd", "go.etcd.io/etcd/server/v3", ETCD, HOW),
        api_server=go_program(
            "kube-apiserver", "k8s.io/kubernetes", KUBERNETES, HOW, "cmd/kube-apiserver"
        ),
        manager=go_program("clabernetes", _CLABERNETES_MODULE, CLABERNETES, HOW, "cmd/clabernetes"),
        definitions=source / "assets" / "crd",
    )


if __name__ == "__main__":
    programs()
