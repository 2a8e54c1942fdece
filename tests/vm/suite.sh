#!/bin/bash
# What `make test-vm` runs inside the virtual machine: the doctor, a lab of the catalog, the tests of
# the queue engines that have to do with sch_red, and one of netem. Ends with 1 when any of them fails.
export COLUMNS=160
results=$(mktemp)
failed=0

uname -r
.venv/bin/rocelab doctor --json | .venv/bin/python -c '
import json, sys
for check in json.load(sys.stdin)["checks"]:
    print("ok     " if check["ok"] else "missing", check["name"] + ":", check["found"])
' || failed=1

.venv/bin/rocelab up tiny || failed=1
echo "queues of tiny: $(cat /run/rocelab/tiny/queues)"
.venv/bin/rocelab status tiny || failed=1
.venv/bin/rocelab down tiny || failed=1

.venv/bin/python -m pytest -p no:cacheprovider -q --color=no -o junit_family=xunit1 --junit-xml="$results" \
	tests/integration/test_queues_red.py tests/integration/test_queues.py -k '(red or wred) and not 400 and not 2000' || failed=1
.venv/bin/python -m pytest -p no:cacheprovider -q --color=no \
	tests/integration/test_cables.py -k takes_the_delay || failed=1
grep -o '"marks at [^/]*"' "$results"
exit $failed
