#!/bin/bash
# enter.sh ROOT NAME COMMAND...: the first process of a machine that is a folder. It is started in
# mount, PID and UTS namespaces of its own, makes ROOT the root with what a running system has
# mounted, and runs COMMAND. It stays beside it, since the first process is who reaps the others.
set -euo pipefail
root=$1 name=$2
shift 2

mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount -t sysfs sysfs sys
[ ! -d /sys/fs/cgroup ] || mount --rbind /sys/fs/cgroup sys/fs/cgroup
mount --rbind /dev dev
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o mode=1777 shm dev/shm
mount -t tmpfs -o mode=755 run run
mount -t tmpfs -o mode=1777 tmp tmp
mkdir -p run/lock
hostname "$name"

# No chroot: a container engine inside needs a root of its own to turn away from.
pivot_root . mnt
cd /
umount -l /mnt
"$@"
