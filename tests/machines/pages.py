"""How each command of the first pages is run, if not exactly as typed.

A command that is in no table below, or in `reference.py`, runs unchanged and must exit with 0.
`Run` has the values of placeholders, the commands before and after, and the expected output;
`NotRun` has the reason why it is not run.
"""

from __future__ import annotations

from tests.machines.how import DOWN, OWN_LAB, SPEC, UP, NotRun, Run, write
from tests.machines.reference import NEEDS_CONTAINERLAB, NO_WINDOW, REFERENCE_PAGES, REFERENCE_RUNS
from tests.machines.subjects import SUBJECT_RUNS

README = "README.md"

PAGES = (
    README,
    *(f"docs/{name}.md" for name in ("tutorial", "tour", "setup", "cli")),
    *REFERENCE_PAGES,
    "docs/drills.md",
    *(f"docs/{name}.md" for name in ("faults", "health", "traffic", "schemes", "simulate")),
    *(f"docs/{name}.md" for name in ("packets", "links")),
    *(f"docs/{name}.md" for name in ("forensics", "runtime", "remote")),
)
"""Pages with commands for newcomers, in the order in which the commands run."""


AS_ROOT = NotRun("all is run as root; the step `sudo` has another user")
SAMPLED = r"all fine, sample [2-9]"

README_RUNS: dict[str, Run | NotRun] = {
    "git clone REPOSITORY rocelab && cd rocelab && make drill": Run(
        ("make drill",),
        shows=(r"link-flap: passed",),
        block="Where the time went",
        shortened="the checkout is there",
    ),
    "sudo -s": AS_ROOT,
    "rocelab doctor": Run(shows=(r"FRR",)),
    "rocelab vtysh zone-small rtsw1 -c 'show bgp summary'": Run(shows=(r"Neighbor",)),
    "rocelab traffic zone-small --pattern allreduce --ranks 8 --size 16MB": Run(
        shows=(r"(?i)busbw",)
    ),
    "rocelab run zone-small --on 'srv*' -- python3 train.py": NotRun("a program of the reader's"),
    "rocelab requests trace.csv": Run(
        (
            write("trace.csv", "timestamp_s,isl,osl\n0,900,20\n1,800,30\n"),
            "rocelab requests trace.csv",
        ),
        shows=(r"2 requests",),
    ),
    "make drill DRILL=torch-ddp-flap": Run(shows=(r"torch-ddp-flap: passed",)),
    "make drill DRILL=checkpoint-incast": Run(shows=(r"checkpoint-incast: passed",)),
    "make drill DRILL=inference-link-loss": Run(shows=(r"inference-link-loss: passed",)),
    "sudo .venv/bin/python -m pytest examples": Run(shows=(r"\d+ passed",)),
}

TOUR_RUNS: dict[str, Run | NotRun] = {
    "make drill": Run(shows=(r"link-flap: passed",), block="Overall, 1 valid repeat"),
    "make lab-shell NODE=rtsw1": Run(typed="ip -brief link\nexit\n", shows=(r"ctsw1", r"rtsw1")),
    "make lab-down": Run(after=("! rocelab list | grep -q zone-small",)),
    "sudo -s": AS_ROOT,
    "rocelab doctor": NotRun("README has it"),
    "rocelab labs": Run(shows=(r"zone-small",)),
    "rocelab vtysh zone-small rtsw1 -c 'show bgp summary'": NotRun("README has it"),
    "rocelab path zone-small --src srv1-1 --dst srv3-1 --sport 50000": Run(shows=(r"srv3-1",)),
    "rocelab traffic zone-small --pattern allreduce --ranks 8 --size 16MB": NotRun("README has it"),
    "rocelab drill run silent-blackhole": Run(shows=(r"silent-blackhole: passed",)),
    "rocelab drill run storm": Run(shows=(r"storm: passed",)),
    "rocelab diagnose slow/result.json": Run(shows=(r"slow-receiver: srv2-1",)),
    "rocelab health zone-small": Run(until=SAMPLED, code=130, after=DOWN),
    "rocelab up zone-small --runtime docker": Run(after=DOWN),
    "rocelab drill run link-flap --runtime docker": Run(shows=(r"link-flap: passed",)),
    "rocelab adopt mine.clab.yml": NEEDS_CONTAINERLAB,
    "rocelab --host me@vm drill run link-flap --out results/flap": Run(
        shows=(r"link-flap: passed",), after=("test -s results/flap/result.json",)
    ),
}

OTHER_RUNS: dict[str, dict[str, Run | NotRun]] = {
    "docs/tour.md": TOUR_RUNS,
    "docs/tutorial.md": {
        "sudo -s": AS_ROOT,
        "rocelab doctor": NotRun("README has it"),
        "rocelab drill run link-flap --out results/first": Run(
            shows=(r"link-flap: passed",), after=("test -s results/first/report.html",)
        ),
    },
    "docs/troubleshooting.md": {
        "rocelab doctor": NotRun("README has it"),
        "rocelab list": NotRun("its page in docs/commands has it"),
        "rocelab status zone-small": NotRun("README has it"),
    },
    "docs/cli.md": {
        "rocelab capture zone-small rtsw1:ctsw1 ctsw1:rtsw1 -o - | wireshark -k -i -": NO_WINDOW,
        "rocelab --host me@vm capture zone-small rtsw1:ctsw1 -o - | wireshark -k -i -": NO_WINDOW,
        "sudo -s": AS_ROOT,
    },
    "docs/setup.md": {
        "sudo .venv/bin/rocelab drill run link-flap --repeat 10": Run(
            ("sudo .venv/bin/rocelab drill run link-flap",),
            shows=(r"link-flap: passed",),
            shortened="one repeat of ten",
        ),
        "sudo .venv/bin/rocelab up tiny --frr /opt/debian13": Run(
            (
                "sudo .venv/bin/rocelab up tiny --frr /opt/debian13",
                "rocelab vtysh tiny rtsw1 -c 'show version'",
            ),
            after=("rocelab down tiny",),
            shows=(r"FRRouting 10\.",),
        ),
    },
    "docs/drills.md": {
        "rocelab drill run link-flap --repeat 5 --out results/before": Run(
            ("rocelab drill run link-flap --out results/before",), shortened="one repeat of five"
        ),
        "rocelab drill run link-flap --repeat 5 --out results/after": Run(
            ("rocelab drill run link-flap --out results/after",), shortened="one repeat of five"
        ),
        "rocelab drill run dcqcn-fairness --repeat 5": Run(
            ("rocelab drill run dcqcn-fairness",),
            shows=(r"dcqcn-fairness: passed",),
            shortened="one repeat of five: each takes three minutes",
        ),
    },
    "docs/faults.md": {
        "rocelab fault inject zone-small blackhole link=rtsw1:ctsw2 towards=rtsw1 lasts=5s": Run(
            before=UP
        ),
        "rocelab fault list zone-small": Run(shows=(r"carrier-down",)),
        "rocelab fault restore zone-small 1": Run(after=DOWN),
    },
    "docs/health.md": {
        "rocelab health zone-small": Run(before=UP, until=SAMPLED, code=130),
        "rocelab health zone-small --for 30s --evidence bundles/": Run(
            ("rocelab health zone-small --for 5s --evidence bundles/",), shortened="5 s of 30"
        ),
        "rocelab health zone-small --for 30s --json": Run(
            ("rocelab health zone-small --for 5s --json",),
            shows=(r'"slis"',),
            shortened="5 s of 30",
        ),
        "rocelab health zone-small --objectives mine.yaml --interval 500ms": Run(
            before=(write("mine.yaml", "interval: 500ms\nflaps: 2\n"),),
            until=SAMPLED,
            code=130,
            after=DOWN,
        ),
        "rocelab up bench-16x4 && rocelab health bench-16x4 --for 10s --json | tail -1": Run(
            shows=(r"cpu_s",), after=("rocelab down bench-16x4",)
        ),
    },
    "docs/traffic.md": {
        "rocelab traffic --pattern incast --ranks 4 --duration 2ms --dcqcn sigcomm15": Run(
            after=DOWN
        ),
    },
    "docs/packets.md": {
        "rocelab simulate lossless --pattern incast --ranks 8 --size 1MB --engine packets": Run(
            block="Pauses of lossless classes"
        ),
    },
    "docs/schemes.md": {
        "rocelab scheme zone-small": Run(before=UP),
        "rocelab scheme zone-small flowlet --set gap=512us": Run(after=DOWN),
    },
    "docs/forensics.md": {
        "rocelab traffic zone-small --pattern allreduce --ranks 8 --size 16MB --out results/job": (
            Run(before=("rm -rf results/job", *UP), after=DOWN)
        ),
        "rocelab diagnose results/paused/result.json --phase one-qp": Run(
            shows=(r"host-pause: rank 2 on srv2-1; ", r"How late data reached each rank")
        ),
    },
    "docs/runtime.md": {
        "rocelab cli zone-small": Run(
            typed='rtsw1 vtysh -c "show bgp summary"\nexit\n', shows=(r"Neighbor",)
        ),
        "rocelab up zone-small --runtime docker --image frrouting/frr:v8.4.1": NotRun(
            "needs an image from a registry"
        ),
        "docker exec -it rocelab-zone-small-rtsw1 bash": Run(
            typed="ip -brief link\nexit\n", shows=(r"ctsw1",), after=DOWN
        ),
        "sudo .venv/bin/rocelab up tiny --runtime docker --image debian13-frr": Run(
            (
                "sudo .venv/bin/rocelab up tiny --runtime docker --image debian13-frr",
                "rocelab vtysh tiny rtsw1 -c 'show version'",
            ),
            after=("rocelab down tiny", "docker image rm debian13-frr"),
            shows=(r"FRRouting 10\.",),
        ),
    },
    "docs/remote.md": {
        "rocelab inventory LAB > inventory.yml": NotRun("its page runs it"),
        "rocelab --host me@vm drill run link-flap --out results/flap": NotRun("the tour has it"),
        "rocelab --host me@vm up mine.yaml": Run(before=(OWN_LAB,)),
        "rocelab --host me@vm shell mine rtsw1": Run(
            typed="ip -brief link\nexit\n",
            shows=(r"ctsw1",),
        ),
        "rocelab --host me@vm capture mine rtsw1:ctsw1 -o -": Run(
            ("rocelab --host me@vm capture mine rtsw1:ctsw1 -o - --seconds 5 >mine.pcapng",),
            after=("test -s mine.pcapng",),
        ),
        "rocelab --host me@vm live mine": Run(
            until=r"mine is at http://127\.0\.0\.1:\d+/",
            code=130,
            after=("rocelab --host me@vm down mine",),
        ),
        "rocelab --host me@vm runs": Run(
            ("rocelab --host me@vm runs", "rocelab --host me@vm runs --json")
        ),
        "rocelab --host me@vm attach": NotRun(
            "there is no run to go on with; tests/integration/test_remote.py cuts a connection"
        ),
        "rocelab --host me@vm runs --remove RUN": NotRun("the same"),
        "ssh -F /run/rocelab/LAB/ssh/config rtsw1": Run(
            ("ssh -F /run/rocelab/mine/ssh/config rtsw1",),
            before=(write("mine.yaml", SPEC + "management: true\n"), "rocelab up mine.yaml"),
            typed="ip -brief link\nexit\n",
            shows=(r"ctsw1",),
        ),
        "ssh -F /run/rocelab/LAB/ssh/config rtsw1 vtysh -c \"'show bgp summary'\"": Run(
            ("ssh -F /run/rocelab/mine/ssh/config rtsw1 vtysh -c \"'show bgp summary'\"",),
            shows=(r"Neighbor",),
            after=("rocelab down mine",),
        ),
    },
}

RUNS: dict[str, dict[str, Run | NotRun]] = {
    README: README_RUNS,
    **REFERENCE_RUNS,
    **OTHER_RUNS,
    **SUBJECT_RUNS,
}
"""By page. Those of `subjects.py` are not in PAGES."""

UNFENCED: dict[str, str] = {
    "make drill": "the first command, behind `git clone`",
    "make test": "a step of its own: `make test-machines RUN=test`",
    "make docs": "for contributors; needs nothing of the machine",
    "make live": "until Ctrl-C; `rocelab live` is run",
    "make bench": "minutes of measuring, for a quiet machine",
    "make simulate": "the tour has it",
}
"""Commands that README names in its text, and why they are not run."""
