#!/bin/bash
# tests/containerlab/run.sh [PYTEST ARGUMENT]...: the tests with containerlab itself, as root.
#
# Labs are in namespaces of their own, as in tests/alone.sh. If no Docker engine runs, one is started
# for the tests, and the networks that containerlab makes are in a network namespace of its own.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH=$(.venv/bin/python -m tests.containerlab.prepare):$PATH
export PATH
# containerlab looks for its bridge in /sys, which is that of the network namespace it was mounted in.
alone=(unshare --net sh -c 'ip link set lo up && mount -t sysfs sysfs /mnt &&
    mount --rbind /sys/fs/cgroup /mnt/fs/cgroup && mount --move /mnt /sys && exec "$@"' sh)
# Not `info`: that of Docker 20.10 ends with 0 where its daemon does not answer.
if docker version >/dev/null 2>&1; then
    alone=()
fi
exec tests/alone.sh "${alone[@]}" .venv/bin/python -m pytest -p no:cacheprovider \
    -o junit_family=xunit1 --junitxml=results/containerlab.xml "$@" \
    tests/containerlab tests/integration/test_runtimes.py
