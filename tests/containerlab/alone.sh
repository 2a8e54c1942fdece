#!/bin/bash
# tests/containerlab/alone.sh COMMAND...: COMMAND with containerlab on the PATH, as root.
#
# Where no Docker engine runs, the command has processes, mounts and a network of its own, as in
# tests/alone.sh, and starts one: then nothing of the machine is touched, and nothing is left.
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
exec tests/alone.sh "${alone[@]}" "$@"
