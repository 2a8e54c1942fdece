"""How each command of the pages on one subject is run.

`tests/integration/test_page_labs.py` runs those that need a lab, on the machine of the test suite.
"""

from __future__ import annotations

from tests.machines.how import NotRun, Run, write

NEEDS_CONTAINERLAB = NotRun("needs containerlab: `make test-containerlab` does the same")
NEEDS_A_REGISTRY = NotRun("needs an image from a registry")
NEEDS_A_VM = NotRun("needs Lima's VM: README has `--host`")
NEEDS_A_CLUSTER = NotRun("needs a cluster")
INSTALLS = NotRun("installs from a package index")

IN_A_CONTAINER = 'docker run --rm -it --init --privileged -v "$PWD:/work" rocelab'
LOSSLESS_LAB = """\
name: mine
fabric: {kind: clos, racks: 2, spines: 2, servers_per_rack: 2}
queues: {pfc: {}}
"""


def collected(*suites: str) -> dict[str, Run | NotRun]:
    """Runs of the test suite's own tests: each must find some."""
    return {
        suite: Run((f"{suite} --collect-only -q",), shortened="`make test` runs these tests")
        for suite in suites
    }


def served(*, before: tuple[str, ...] = (), after: tuple[str, ...] = ()) -> Run:
    """A command that serves the page of `tiny` until Ctrl-C."""
    return Run(until=r"tiny is at http://", code=130, before=before, after=after)


SUBJECT_RUNS: dict[str, dict[str, Run | NotRun]] = {
    "docs/dev/fault.md": {
        "rocelab fault list tiny": Run(shows=(r"carrier-down",)),
        "rocelab status tiny": Run(code=1, shows=(r"broken on purpose",)),
    },
    "docs/dev/plan.md": {"rocelab plan tiny --json": Run(shows=(r"ctsw1",))},
    "docs/adopt.md": {
        **dict.fromkeys(
            (
                "rocelab adopt mine.clab.yml",
                "rocelab drill run uplink-flap --lab mine",
                "rocelab release mine",
                "rocelab status mine",
                "rocelab reach mine",
                "rocelab fault inject mine carrier-down link=leaf1:eth1 lasts=2s",
                "rocelab fault inject mine grey-loss link=leaf1:eth1 loss=2% lasts=10s",
            ),
            NEEDS_CONTAINERLAB,
        ),
    },
    "docs/clabernetes.md": {
        "make test-kubernetes": NotRun("builds Kubernetes with Go; a suite of its own"),
    },
    "docs/compare.md": {
        **collected(
            "sudo .venv/bin/python -m pytest -p no:cacheprovider tests/integration/test_predict.py"
        ),
        "make compare": NotRun("minutes of measuring; the next command does the same"),
        "sudo .venv/bin/rocelab compare zone-1-1 --schemes ecmp,e-ecmp,spray --qps 1,4,16"
        " --repeat 3": Run(
            (
                "sudo .venv/bin/rocelab compare zone-1-1 --schemes ecmp,e-ecmp,spray --qps 1,4"
                " --size 1MB --iterations 1",
            ),
            shows=(r"spray",),
            shortened="one repeat of three, two counts of queue pairs, 1 MB: it takes minutes",
        ),
    },
    "docs/containerlab.md": {
        **dict.fromkeys(
            (
                "sudo containerlab deploy -t zone-small/zone-small.clab.yml",
                "sudo docker exec -it clab-zone-small-rtsw1 vtysh",
                "sudo docker exec clab-zone-small-rtsw1 vtysh -c 'show bgp summary'",
                "sudo docker exec clab-zone-small-srv1-1 ping -c 3 198.18.0.8",
                "sudo docker exec clab-zone-small-rtsw1 ip link set ctsw1 down",
                "sudo docker exec clab-zone-small-rtsw1 ip route show 198.18.0.8/29",
            ),
            NEEDS_CONTAINERLAB,
        ),
        **collected(".venv/bin/python -m pytest tests/unit/render/test_containerlab.py"),
    },
    "docs/convergence.md": {
        **collected("sudo .venv/bin/python -m pytest tests/integration/test_meter.py"),
        "sudo .venv/bin/python -m bench.tracing zone-small 16 rtsw1:ctsw2": Run(
            ("sudo .venv/bin/python -m bench.tracing zone-small 1 rtsw1:ctsw2",),
            shows=(r"last FIB change",),
            shortened="one pair of runs of 16",
        ),
    },
    "docs/laptop.md": {
        **dict.fromkeys(
            (
                "docker build -t rocelab -f examples/container/Dockerfile .",
                f"{IN_A_CONTAINER} doctor",
                f"{IN_A_CONTAINER} drill run link-flap",
            ),
            NEEDS_A_REGISTRY,
        ),
        "pip install -e '.[remote]'": INSTALLS,
        "rocelab --host 127.0.0.1:60022 doctor": NEEDS_A_VM,
        "rocelab --host 127.0.0.1:60022 drill run link-flap --out results/flap": NEEDS_A_VM,
    },
    "docs/live.md": {
        "rocelab live tiny": served(before=("rocelab up tiny",)),
        "rocelab live tiny --read-only": served(),
        "rocelab live tiny --terminal": served(),
        "rocelab live tiny --port 8700": served(after=("rocelab down tiny",)),
    },
    "docs/deadlocks.md": {
        "rocelab traffic deadlock --job deadlock": Run(
            code=1, shows=(r"deadlock:",), after=("rocelab down deadlock",)
        ),
    },
    "docs/pfc.md": {
        **collected(".venv/bin/python -m pytest tests/integration/test_lossless*.py"),
        **collected(".venv/bin/python -m pytest tests/integration/test_runtimes.py -k lossless"),
        "rocelab fault inject mine slow-receiver server=srv2-1 rate=25%": Run(
            before=(write("mine.yaml", LOSSLESS_LAB), "rocelab up mine.yaml")
        ),
        "rocelab diagnose job/result.json": Run(
            block="slow-receiver: srv2-1", after=("rocelab down mine",)
        ),
        "rocelab drill run finding-pfc-allreduce --repeat 10": Run(
            ("rocelab drill run finding-pfc-allreduce",),
            shows=(r"finding-pfc-allreduce: passed",),
            shortened="one repeat of ten",
        ),
        "rocelab drill run finding-pfc-alltoall --repeat 10": Run(
            ("rocelab drill run finding-pfc-alltoall",),
            shows=(r"finding-pfc-alltoall: passed",),
            shortened="one repeat of ten",
        ),
    },
    "docs/pytest.md": {
        "sudo PATH_OF_VENV/bin/python -m pytest --rocelab-require --junit-xml=junit.xml": Run(
            (
                "cd suite && sudo ../.venv/bin/python -m pytest --rocelab-require"
                " --junit-xml=junit.xml",
            ),
            before=("mkdir suite && cp examples/test_cable.py suite && touch suite/pytest.ini",),
            shows=(r"1 passed",),
            after=("test -s suite/junit.xml",),
        ),
    },
    "docs/queues.md": {
        **collected("sudo .venv/bin/python -m pytest tests/integration/test_queues.py -k wred_line")
    },
    "docs/sweep.md": {
        "pip install -e '.[sim,report,sweep]'": INSTALLS,
        "rocelab sweep examples/uplinks.yaml --cluster 10.0.0.7:8786": NEEDS_A_CLUSTER,
    },
    "docs/te.md": {
        "rocelab scheme zone-1-1 te --set engine=lp": Run(before=("rocelab up zone-1-1",)),
        "rocelab te zone-1-1 --bound --json": Run(after=("rocelab down zone-1-1",)),
        **collected(".venv/bin/python -m pytest tests/integration/test_controller.py -s"),
    },
}
