#!/bin/bash
# tests/kubernetes/run.sh [PYTEST ARGUMENT]...: what clabernetes makes of rendered labs, as root.
#
# The API server and all else run with processes, mounts and a network of their own, as in
# tests/alone.sh: the machine's own cluster is not touched, and nothing is left.
set -euo pipefail
cd "$(dirname "$0")/../.."
.venv/bin/python -m tests.kubernetes.prepare
exec tests/alone.sh unshare --net sh -c 'ip link set lo up && exec "$@"' sh \
    .venv/bin/python -m pytest -p no:cacheprovider -o junit_family=xunit1 --junitxml=results/kubernetes.xml "$@" \
    tests/kubernetes
