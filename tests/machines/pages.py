"""How each command of the first pages is run, where that is not simply as it is typed.

A command that is in no table below runs as it stands and ends with 0. `Run` says what is typed for
placeholders, what comes before and after, and what it shows; `NotRun` says why it is not run.
"""

from __future__ import annotations

from dataclasses import dataclass

README = "README.md"

PAGES = (
    README,
    *(f"docs/{each}.md" for each in ("tutorial", "setup", "cli", "drills", "faults")),
    *(f"docs/{each}.md" for each in ("health", "traffic", "schemes", "simulate", "forensics")),
    *(f"docs/{each}.md" for each in ("runtime", "remote")),
)
"""Pages that a newcomer types from, in the order in which their commands run."""


@dataclass(frozen=True, slots=True)
class Run:
    """How a command is run.

    `lines` are run in its place, `()` means as it stands; `before` and
    `after` must end with 0. `shows` are regular expressions that its output has; `block` begins
    the block of its page that it shows. `typed` goes to its standard input, a terminal. After
    `seconds` it gets Ctrl-C.
    """

    lines: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    code: int = 0
    shows: tuple[str, ...] = ()
    block: str = ""
    typed: str = ""
    seconds: float | None = None
    shortened: str = ""


@dataclass(frozen=True, slots=True)
class NotRun:
    """Why a command is not run."""

    reason: str


OUT = "results/pages"
UP = ("rocelab up zone-small",)
DOWN = ("rocelab down zone-small",)
SPEC = "name: mine\nfabric: {kind: clos, racks: 2, spines: 2}\n"
JOB = "--job ranking-128"
RING = "--pattern allreduce --ranks 8 --size 16MB"
PASSED = r"passed"


def _write(name: str, text: str) -> str:
    """A line that writes a file."""
    escaped = text.replace("\n", "\\n")
    return f"printf '%b' '{escaped}' >{name}"


OWN_LAB = _write("mine.yaml", SPEC)

README_RUNS: dict[str, Run | NotRun] = {
    "make drill": Run(shows=(r"link-flap: passed",), block="Overall, 1 valid repeat"),
    "make test": NotRun("a step of its own: `make test-machines RUN=test`"),
    "sudo -s": NotRun("all is run as root; the step `sudo` has another user"),
    "make lab-status": Run(shows=(r"zone-small",)),
    "make lab-shell NODE=rtsw1": Run(typed="ip -brief link\nexit\n", shows=(r"ctsw1", r"rtsw1")),
    "make lab-down": Run(after=("! rocelab list | grep -q zone-small",)),
    "rocelab doctor": Run(shows=(r"FRR",)),
    "rocelab plan LAB": Run(("rocelab plan zone-small", "rocelab plan zone-small --json")),
    "rocelab render LAB -o DIR": Run(
        (
            f"rocelab render zone-small -o {OUT}/frr",
            f"rocelab render zone-small -o {OUT}/clab --target containerlab",
            f"rocelab render zone-small -o {OUT}/kube --target clabernetes",
        ),
        after=(f"test -s {OUT}/frr/rtsw1/bgpd.conf",),
    ),
    "rocelab graph LAB": Run((f"rocelab graph zone-small -o {OUT}/graph.svg",)),
    "rocelab up LAB": Run(
        (
            "rocelab up zone-small",
            "rocelab list",
            "rocelab status zone-small",
            "rocelab down zone-small",
        )
    ),
    "rocelab up LAB --runtime mininet": Run(
        ("rocelab up zone-small --runtime mininet",), after=DOWN
    ),
    "rocelab up LAB --frr PREFIX": NotRun("docs/setup.md has it"),
    "rocelab --host user@vm COMMAND": Run(("rocelab --host me@vm doctor",), shows=(r"FRR",)),
    "rocelab exec LAB NODE -- CMD": Run(
        (
            "rocelab exec zone-small rtsw1 -- ip -brief link",
            "rocelab vtysh zone-small rtsw1 -c 'show bgp summary'",
        ),
        before=UP,
        shows=(r"ctsw1", r"Neighbor"),
    ),
    "rocelab ping LAB SRC DST": Run(
        ("rocelab ping zone-small srv1-1 srv4-1 -c 3",), shows=(r"3 received",)
    ),
    "rocelab capture LAB NODE IFACE -o x.pcapng": Run(
        ("rocelab capture zone-small rtsw1 ctsw1 -o x.pcapng --seconds 5",),
        after=("tshark -r x.pcapng -Y bgp | grep -q BGP",),
    ),
    "rocelab path LAB --src A --dst B --sport N": Run(
        ("rocelab path zone-small --src srv1-1 --dst srv3-1 --sport 50000 --probe",),
        shows=(r"srv3-1",),
    ),
    "rocelab traffic --pattern allreduce --ranks 8 --size 16MB": Run(shows=(r"(?i)busbw",)),
    "rocelab scheme LAB e-ecmp": Run(
        ("rocelab scheme zone-small e-ecmp",), after=("rocelab scheme zone-small ecmp",)
    ),
    "make compare": Run(
        (
            "rocelab compare zone-1-1 --qps 1,4 --schemes ecmp,e-ecmp --size 1MB --iterations 1"
            f" --out {OUT}/compare",
        ),
        before=DOWN,
        shortened="2 schemes, 2 counts of queue pairs and 1 MB instead of all: it takes minutes",
    ),
    'rocelab whatif LAB "drain ctsw7 for 2h" --job FILE': Run(
        ('rocelab whatif zone-1-1 "drain ctsw4 for 2h" --job mine-job.yaml',),
        before=(
            _write(
                "mine-job.yaml",
                "jobs:\n  - {name: ring, collective: {pattern: allreduce, ranks: 16, size: 1GB}}\n",
            ),
        ),
    ),
    "rocelab drill run NAME": Run(
        (f"rocelab drill run link-flap --repeat 2 --out {OUT}/flap",),
        shows=(r"valid (of \d+ )?repeats",),
    ),
    "rocelab drill diff OLD NEW": Run((f"rocelab drill diff {OUT}/flap {OUT}/flap",)),
    "rocelab drill list": Run(
        ("rocelab drill list", "rocelab drill show link-flap"), shows=(r"silent-blackhole",)
    ),
    "rocelab fault inject LAB KIND": Run(
        (
            "rocelab fault inject zone-small carrier-down link=rtsw1:ctsw2",
            "rocelab fault list zone-small",
            "rocelab fault restore zone-small --all",
            "rocelab fault kinds",
        ),
        before=UP,
        shows=(r"carrier-down",),
    ),
    "rocelab health LAB": Run(("rocelab health zone-small --once",)),
    "rocelab evidence LAB --out DIR": Run(
        (f"rocelab evidence zone-small rtsw1 --out {OUT}/evidence",),
        after=(f"test -s {OUT}/evidence/evidence.json",),
    ),
    "rocelab diagnose RESULT.json": Run(
        (f"rocelab diagnose {OUT}/job/result.json",),
        before=(f"rocelab traffic zone-small {RING} --out {OUT}/job",),
        after=DOWN,
    ),
    "rocelab drill run silent-blackhole": Run(shows=(r"silent-blackhole: passed",)),
    "rocelab drill run storm": Run(shows=(r"storm: passed",)),
    "rocelab fault inject zone-small carrier-down link=rtsw1:ctsw2 lasts=10s": Run(before=UP),
    "rocelab health zone-small": Run(seconds=5, code=130, after=DOWN),
    "sudo .venv/bin/python -m pytest examples": Run(shows=(r"\d+ passed",)),
    "rocelab up zone-small --runtime docker": Run(after=DOWN),
    "rocelab drill run link-flap --runtime docker": Run(shows=(r"link-flap: passed",)),
    "rocelab --host me@vm drill run link-flap --out results/flap": Run(
        shows=(r"link-flap: passed",), after=("test -s results/flap/result.json",)
    ),
}

OTHER_RUNS: dict[str, dict[str, Run | NotRun]] = {
    "docs/tutorial.md": {
        "sudo -s": NotRun("all is run as root; the step `sudo` has another user"),
        "rocelab doctor": NotRun("README has it"),
        "rocelab drill run link-flap --out results/first": Run(
            shows=(r"link-flap: passed",), after=("test -s results/first/report.html",)
        ),
    },
    "docs/cli.md": {
        "sudo -s": NotRun("all is run as root; the step `sudo` has another user"),
    },
    "docs/setup.md": {
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
        "rocelab health zone-small": Run(before=UP, seconds=5, code=130),
        "rocelab health zone-small --for 30s --evidence bundles/": Run(
            ("rocelab health zone-small --for 5s --evidence bundles/",), shortened="5 s of 30"
        ),
        "rocelab health zone-small --for 30s --json": Run(
            ("rocelab health zone-small --for 5s --json",),
            shows=(r'"slis"',),
            shortened="5 s of 30",
        ),
        "rocelab health zone-small --objectives mine.yaml --interval 500ms": Run(
            before=(_write("mine.yaml", "interval: 500ms\nflaps: 2\n"),),
            seconds=5,
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
    "docs/schemes.md": {
        "rocelab scheme zone-small": Run(before=UP),
        "rocelab scheme zone-small flowlet --set gap=512us": Run(after=DOWN),
    },
    "docs/forensics.md": {
        "rocelab traffic zone-small --pattern allreduce --ranks 8 --size 16MB --out results/job": (
            Run(before=UP, after=DOWN)
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
        "rocelab --host me@vm drill run link-flap --out results/flap": NotRun("README has it"),
        "rocelab --host me@vm up mine.yaml": Run(before=(OWN_LAB,)),
        "rocelab --host me@vm shell mine rtsw1": Run(
            typed="ip -brief link\nexit\n",
            shows=(r"ctsw1",),
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
            before=(_write("mine.yaml", SPEC + "management: true\n"), "rocelab up mine.yaml"),
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
    **OTHER_RUNS,
}

UNFENCED: dict[str, str] = {
    "make soak": "a hundred kills and a thousand flaps",
    "make adversary": "hours, of a machine that is made to misbehave",
    "make drills": "every drill, one after the other: over half an hour",
    "make bench": "minutes of measuring, for a quiet machine",
    "make convergence-table": "over an hour",
    "make test-vm": "a step of its own: `make test-vm`",
    "make test-machines": "what runs this",
}
"""Commands that README names in its sentences, and why they are not run."""
