#!/bin/bash
# tests/alone.sh COMMAND...: run a command as root whose labs nobody else sees. It has processes, mounts,
# /run/rocelab and /run/netns of its own: whatever kills it, nothing is left; what another suite of
# this machine runs, or an earlier one left, is not in its way. All else is the machine's.
set -euo pipefail
if [ "${1-}" != --inside ]; then
    exec unshare --mount --propagation private --pid --fork --kill-child bash "$0" --inside "$@"
fi
shift
mount -t proc proc /proc
own=$(mktemp -d)
mount -t tmpfs -o mode=755 tmpfs "$own"
for each in /run/* /run/.[!.]*; do
    target=$own/${each##*/}
    case $each in /run/rocelab | /run/rocelab-tests | /run/netns) continue ;; esac
    if [ -L "$each" ]; then
        cp -P "$each" "$target"
    elif [ -d "$each" ]; then
        mkdir "$target"
        mount --rbind "$each" "$target"
    elif [ -e "$each" ]; then
        touch "$target"
        mount --bind "$each" "$target"
    fi
done
mount --move "$own" /run
rmdir "$own"
# Not exec: the first process reaps those whose parents have ended.
"$@"
