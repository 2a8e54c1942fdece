#!/bin/bash
# What `make test-machines RUN=hardened` runs in a machine, in the checkout: drills and tests with labs
# where every setting that a node could inherit is another than the kernel's own, as after a
# hardening guide; where a packet filter drops all but loopback; and as a root that lacks a capability
# of process 1. Packages are installed before.
#
# The settings are those of a network namespace of its own. That nodes have them of this namespace
# and not of the first one takes a setting of the kernel, which is put back at the end.
set -uo pipefail
inherit=/proc/sys/net/core/devconf_inherit_init_net

if [ "${1-}" != --inside ]; then
    set -e
    apt-get -q update
    apt-get -q -y install --no-install-recommends nftables
    make setup
    ./setup.sh test
    before=$(cat $inherit)
    trap 'echo "$before" >$inherit' EXIT
    trap 'exit 143' TERM INT HUP
    echo 3 >$inherit
    unshare --net setpriv --bounding-set -sys_time --inh-caps -sys_time bash "$0" --inside
    exit
fi

failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}

ip link set lo up
.venv/bin/python -c "from tests.helpers.hardened import harden; harden()"
nft -f - <<'RULES'
table inet filter {
    chain input { type filter hook input priority 0; policy drop; iif lo accept; }
    chain forward { type filter hook forward priority 0; policy drop; }
    chain output { type filter hook output priority 0; policy drop; oif lo accept; }
}
RULES
sysctl net.ipv4.conf.default.rp_filter net.ipv4.conf.all.arp_ignore
nft list tables
grep CapEff /proc/1/status /proc/self/status
[ "$(sysctl -n net.ipv4.conf.default.rp_filter)" = 1 ] || fail "no reverse-path filter: nothing is tried"
[ "$(grep CapEff /proc/1/status)" != "$(grep CapEff /proc/self/status)" ] ||
    fail "process 1 has no more capabilities: nothing is tried"

rocelab=.venv/bin/rocelab
COLUMNS=200 $rocelab doctor || fail "doctor"
for drill in link-flap drain; do
    $rocelab drill run $drill || fail "drill $drill"
done
# Not by tests/alone.sh: its process 1 has no more capabilities than the tests.
.venv/bin/python -m pytest -q -p no:cacheprovider -m "not long" -k "not docker and not containerlab" \
    tests/integration/test_{fabric,faulted_run,management,doctor_machine,runtimes,refusals}.py ||
    fail "tests"
exit $failed
