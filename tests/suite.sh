#!/bin/bash
# What `make test` does after lint: types and unit tests, beside three kinds of tests with labs; and
# `make test-long`, for what the first leaves out.
# Usage: tests/suite.sh MARKS [COMMAND TO BECOME ROOT], where MARKS is "not long" or "long"
#
# Tests with labs wait and measure, types and unit tests compute: these have what the others leave
# of the CPUs (SCHED_IDLE, sched(7)), and their share like anybody once those are over. What numba
# compiles is compiled before, since others wait for it.
set -u
cd "$(dirname "$0")/.." || exit
marks=$1
as_root=("${@:2}")
said=results/test-unit.log
not_measured=results/not-measured.txt
said_by_half=results/test-unit-half.log
half="^(bench|hosts|jobs|planning|prediction|report|results|routes|sim)/"
failed=0

family() { # ids of these processes and of all that they have started
    local process
    for process in "$@"; do
        echo "$process"
        family $(pgrep --parent "$process")
    done
}

files() { # of tests with labs, chosen by grep's options: to import all costs each process seconds
    grep "$@" tests/integration/test_*.py
}

labs() {
    # Not in the foreground, where a signal to this shell would wait for it.
    "${as_root[@]}" tests/alone.sh .venv/bin/python -m pytest -p no:cacheprovider -m "($1) and $marks" \
        --not-measured "$not_measured" "${@:2}" &
    wait $! || failed=1
}

hand_over() { # what root has written here, to whoever typed the command
    [ ${#as_root[@]} = 0 ] || "${as_root[@]}" find . -xdev -user root -exec chown -h "$(id -u):$(id -g)" {} +
}

stop() { # as Ctrl-C at a terminal does, which tells every process
    trap - EXIT INT TERM HUP
    "${as_root[@]}" kill $(family $(jobs -p)) 2>/dev/null
    wait
    hand_over
    exit "$1"
}

trap 'stop 130' INT
trap 'stop 143' TERM HUP
echo "types and unit tests run beside the labs and say what they found at the end"
mkdir -p results
rm -f "$not_measured"
unit() { # tests of the files and folders below tests/unit that grep's options leave
    (cd tests/unit && ls -d [a-z]*/ test_*.py) | grep "$@" | sed s:^:tests/unit/: |
        xargs .venv/bin/python -m pytest -m "$marks"
}
compute() {
    .venv/bin/rocelab simulate --compile-only &&
        chrt --idle --pid 0 $BASHPID &&
        .venv/bin/mypy || return
    # Two processes, each with its half: those of xdist would each import and collect all.
    unit -E "$half" >"$said_by_half" 2>&1 &
    unit -vE "$half"
    local code=$?
    wait $! || code=1
    cat "$said_by_half"
    return $code
}
compute >"$said" 2>&1 &
computing=$!
# A file goes to one process: its tests share labs.
side_by_side=(--dist loadfile --no-loadscope-reorder)
labs "side_by_side" -n 4 "${side_by_side[@]}" $(files -l side_by_side)
labs "few_at_once and not side_by_side" -n 3 "${side_by_side[@]}" $(files -l few_at_once)
labs "not side_by_side and not few_at_once" \
    $(files -LE "^pytestmark = \[?pytest\.mark\.(side_by_side|few_at_once)\b")
for process in $(family $computing); do
    # With its threads: one that has what others wait for would keep it.
    "${as_root[@]}" chrt --all-tasks --other --pid 0 "$process" 2>/dev/null
done
wait $computing || failed=1
hand_over
cat "$said"
exit $failed
