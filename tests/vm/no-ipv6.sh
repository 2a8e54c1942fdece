#!/bin/bash
# What `make test-vm` runs on a kernel booted with ipv6.disable=1, as some hosts are hardened: a lab
# without IPv6 comes up and carries packets, one that needs it is refused with advice.
export COLUMNS=160
failed=0
fail() {
	echo "FAILED: $*"
	failed=1
}

[ ! -e /proc/sys/net/ipv6 ] || fail "this kernel has IPv6"
.venv/bin/rocelab up tiny && .venv/bin/rocelab reach tiny || fail "the lab tiny"
.venv/bin/rocelab down tiny || fail "down"

said=$(.venv/bin/rocelab up unnumbered 2>&1)
code=$?
echo "$said"
[ $code = 3 ] && [[ $said == *"IPv6 is off here"* ]] || fail "up unnumbered ended with $code"
[ ! -e /run/rocelab/unnumbered ] || fail "something of the lab unnumbered is left"
exit $failed
