#!/bin/bash
# What `make test-vm` runs in a virtual machine, in the checkout: the whole drill, which may be too
# much for an emulated CPU and then has to say so; a small one, which is not; and what a kernel
# without hash seeds (before Linux 6.11) says and refuses.
set -uo pipefail
export COLUMNS=160
seeds=/proc/sys/net/ipv4/fib_multipath_hash_seed
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}

echo "Linux $(uname -r)"
if make drill 2>&1 | tee /root/drill; then
    echo "make drill: passed"
elif grep -qE 'this machine is too slow|repeat 1 is invalid: ' /root/drill; then
    echo "make drill: this machine did not carry it, and said so"
else
    fail "make drill"
fi

rocelab=.venv/bin/rocelab
$rocelab drill run tests/machines/slow-flap.yaml || fail "the small drill"

$rocelab up tiny 2>&1 | tee /root/up && $rocelab status tiny || fail "the lab tiny"
[ -e $seeds ] || grep -q 'all switches share one secret hash' /root/up ||
    fail "up does not say that the kernel has no seeds"
said=$($rocelab path tiny --src srv1-1 --dst srv3-1 --sport 50000 2>&1)
code=$?
echo "$said"
if [ -e $seeds ]; then
    [ $code = 0 ] || fail "a path is predicted where the kernel has seeds"
else
    [ $code = 2 ] && [[ $said == *"cannot be predicted"* ]] || fail "a path is refused without seeds"
fi
$rocelab down tiny || fail "down"
exit $failed
