#!/bin/busybox sh
# The first process of the virtual machine: puts this machine's files together, runs the command
# that `run.py` left in the folder it shares, leaves the exit code there and powers off.
/bin/busybox --install -s /bin
ln -s /bin/busybox /sbin/modprobe
export PATH=/bin:/sbin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
modprobe -a virtio_pci 9pnet_virtio 9p overlay

share=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o ro,cache=loose,$share root /host
mount -t tmpfs layer /layer
mkdir /layer/upper /layer/work
mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work root /new
for each in dev proc sys; do mount -o bind /$each /new/$each; done
mkdir -p /new/dev/shm /new/dev/pts
mount -t devpts pts /new/dev/pts
for each in dev/shm run; do mount -t tmpfs $each /new/$each; done
mkdir /new/run/vm
mount -t 9p -o $share results /new/run/vm
ip link set lo up
hostname vm

# A lab's nodes have roots of their own (pivot_root), which needs a root that is no initramfs.
cd /new
mount -o move . /
chroot . /bin/bash /run/vm/command.sh
echo $? > run/vm/code
sync
poweroff -f
