"""How each command of the pages in docs/commands/ is run.

Usage lines have placeholders. A new command has a new usage line, which must be in the table below.
An example in no table that its usage line runs is not run again.
"""

from __future__ import annotations

from pathlib import Path

from docs.commandline import commands as command_words
from docs.generate import command_page
from rocelab.cli.main import command_line
from tests.machines.how import DOWN, OUT, UP, NotRun, Run, write
from tests.machines.typed import commands

README_HAS_IT = NotRun("README or the tour has it")
DRILLS_HAVE_IT = NotRun("docs/drills.md has it")
NEEDS_CONTAINERLAB = NotRun("these machines have no containerlab: make test-containerlab runs it")
NO_WINDOW = NotRun("tests/integration/test_cli.py reads it with tshark")
OWN_JOB = "jobs:\n  - {name: ring, collective: {pattern: allreduce, ranks: 16, size: 1GB}}\n"

COMMAND_RUNS: dict[str, Run | NotRun] = {
    "rocelab labs [OPTIONS]": Run(("rocelab labs --json",), shows=(r'"fits": true',)),
    "rocelab plan LAB [OPTIONS]": Run(
        ("rocelab plan zone-small", "rocelab plan zone-small --json")
    ),
    "rocelab render LAB [OPTIONS]": Run(
        (
            f"rocelab render zone-small -o {OUT}/frr",
            f"rocelab render zone-small -o {OUT}/clab --target containerlab",
            f"rocelab render zone-small -o {OUT}/kube --target clabernetes",
            "rocelab render ospf-ibgp --diff",
        ),
        after=(f"test -s {OUT}/frr/rtsw1/bgpd.conf",),
    ),
    "rocelab graph LAB [OPTIONS]": Run(
        (f"rocelab graph zone-small -o {OUT}/graph.svg", "rocelab graph tiny --format mermaid"),
        shows=(r"rtsw1",),
    ),
    "rocelab import SOURCE [OPTIONS]": Run(
        (
            f"rocelab render zone-small -o {OUT}/drawn --target containerlab",
            f"rocelab import {OUT}/drawn/zone-small.clab.yml",
        ),
        shows=(r"spines: 4",),
    ),
    "rocelab schema [KIND]": Run(("rocelab schema",), shows=(r"properties",)),
    "rocelab doctor [OPTIONS]": Run(("rocelab doctor --json",), shows=(r'"can_run": true',)),
    "rocelab up LAB [OPTIONS]": Run(
        (
            "rocelab up tiny --json",
            "rocelab up tiny --reuse --json",
            "rocelab up zone-small --runtime mininet",
        ),
        shows=(r'"reused": false', r'"reused": true'),
    ),
    "rocelab adopt TOPOLOGY|LAB [OPTIONS]": NEEDS_CONTAINERLAB,
    "rocelab release LAB": NEEDS_CONTAINERLAB,
    "rocelab image build [OPTIONS]": NotRun("`rocelab up --runtime docker` builds it"),
    "rocelab down [LAB] [OPTIONS]": Run(("rocelab down tiny", "rocelab down zone-small"), after=UP),
    "rocelab list [OPTIONS]": Run(
        ("rocelab list", "rocelab list --json"), shows=(r"zone-small", r"running")
    ),
    "rocelab status [LAB] [OPTIONS]": Run(
        ("rocelab status", "rocelab status zone-small --json"), shows=(r'"converged": true',)
    ),
    "rocelab shell LAB NODE": Run(
        ("rocelab shell zone-small rtsw1",), typed="ip -brief link\nexit\n", shows=(r"ctsw1",)
    ),
    "rocelab vtysh LAB NODE [OPTIONS]": README_HAS_IT,
    "rocelab cli [LAB]": Run(
        ("rocelab cli zone-small",), typed="rtsw1 ip -brief link\nexit\n", shows=(r"ctsw1",)
    ),
    "rocelab path LAB --src SERVER --dst SERVER --sport PORT [OPTIONS]": Run(
        ("rocelab path zone-small --src srv1-1 --dst srv3-1 --sport 50000 --probe",),
        shows=(r"srv3-1",),
    ),
    "rocelab reach [LAB] [OPTIONS]": Run(("rocelab reach", "rocelab reach zone-small --json")),
    "rocelab scheme LAB [SCHEME] [OPTIONS]": Run(
        ("rocelab scheme zone-small", "rocelab scheme zone-small e-ecmp"),
        after=("rocelab scheme zone-small ecmp",),
    ),
    "rocelab te [LAB] [OPTIONS]": NotRun(
        "needs traffic under the scheme te: tests/integration/test_controller.py"
    ),
    "rocelab capture LAB PORT... --out FILE [OPTIONS]": Run(
        ("rocelab capture zone-small rtsw1:ctsw1 ctsw1:rtsw1 -o x.pcapng --seconds 5",),
        after=("tshark -r x.pcapng -Y bgp | grep -q BGP",),
    ),
    "rocelab capture zone-small rtsw1:ctsw1 ctsw1:rtsw1 -o - | wireshark -k -i -": NO_WINDOW,
    "rocelab runs [OPTIONS]": NotRun("docs/remote.md has it"),
    "rocelab attach [RUN]": NotRun("docs/remote.md has it"),
    "rocelab exec LAB NODE -- CMD...": Run(
        ("rocelab exec zone-small rtsw1 -- ip -brief link",), shows=(r"ctsw1",)
    ),
    "rocelab run LAB -- CMD... [OPTIONS]": NotRun("its example is"),
    "rocelab run zone-small --on 'srv*' -- python3 train.py": Run(
        ("rocelab run zone-small --on 'srv*' -- hostname",), shows=(r"srv4-2 *\| srv4-2",)
    ),
    "rocelab run zone-small --on srv1-1 -- mpirun --host srv1-1,srv2-1 ./allreduce": NotRun(
        "MPI is not installed"
    ),
    "rocelab ping LAB SRC DST [OPTIONS]...": NotRun("its example is"),
    "rocelab ping zone-small srv1-1 srv4-1 -c 3": Run(shows=(r"3 received",)),
    "rocelab traffic [LAB] [OPTIONS]": README_HAS_IT,
    "rocelab diagnose RESULT.json [OPTIONS]": NotRun("its example is"),
    "rocelab diagnose results/job/result.json --picture map.svg": Run(
        after=("test -s map.svg", "rm map.svg")
    ),
    "rocelab diagnose results/slow-receiver-TIME/result.json --phase slow": NotRun(
        "TIME is that of a run"
    ),
    "rocelab compare LAB [OPTIONS]": NotRun("its example is"),
    "rocelab compare zone-1-1 --schemes ecmp,e-ecmp,spray --qps 1,4,16": Run(
        (
            "rocelab compare zone-1-1 --qps 1,4 --schemes ecmp,e-ecmp --size 1MB --iterations 1"
            f" --out {OUT}/compare",
        ),
        before=DOWN,
        shortened="2 schemes, 2 counts of queue pairs and 1 MB instead of all: it takes minutes",
    ),
    "rocelab predict LAB [OPTIONS]": NotRun("its example is"),
    "rocelab simulate LAB [OPTIONS]": NotRun("its examples are"),
    "rocelab simulate llama3-24k --job llama3-16k --out results/llama3": NotRun(
        "docs/simulate.md has it"
    ),
    "rocelab whatif LAB EVENT [OPTIONS]": Run(
        ('rocelab whatif zone-1-1 "drain ctsw4 for 2h" --job mine-job.yaml',),
        before=(write("mine-job.yaml", OWN_JOB),),
    ),
    "rocelab longrun LAB [OPTIONS]": NotRun("its example is"),
    "rocelab sweep FILE [OPTIONS]": README_HAS_IT,
    "rocelab sweep examples/uplinks.yaml --workers 4": README_HAS_IT,
    "rocelab reference LAB FILE [OPTIONS]": NotRun("its example says why"),
    "rocelab requests FILE [OPTIONS]": NotRun("its examples say why"),
    "rocelab requests AzureLLMInferenceTrace_code.csv": NotRun("needs Azure's published trace"),
    "rocelab requests log.csv --time started:ms --prompt in --output out": NotRun(
        "needs a log of a served model"
    ),
    "rocelab reference rail-superpod all_reduce.txt --pattern allreduce --ranks 8": NotRun(
        "needs a table of nccl-tests from a machine with GPUs"
    ),
    "rocelab live [LAB] [OPTIONS]": Run(
        ("rocelab live zone-small",), until=r"zone-small is at http://", code=130
    ),
    "rocelab events [LAB] [OPTIONS]": Run(
        ("rocelab fault inject zone-small carrier-down link=rtsw1:ctsw2", "rocelab events --json"),
        until=r'"kind": "fault"',
        code=130,
        after=("rocelab fault restore zone-small --all",),
    ),
    "rocelab inventory [LAB] [OPTIONS]": NotRun("tests/integration/test_management.py does"),
    "rocelab health [LAB] [OPTIONS]": Run(("rocelab health zone-small --once",), before=UP),
    "rocelab evidence LAB [NODE]... --out DIR [OPTIONS]": Run(
        (f"rocelab evidence zone-small rtsw1 --out {OUT}/evidence",),
        after=(f"test -s {OUT}/evidence/evidence.json",),
    ),
    "rocelab drill list [OPTIONS]": Run(
        ("rocelab drill list", "rocelab drill list --json"), shows=(r"silent-blackhole",)
    ),
    "rocelab drill show DRILL [OPTIONS]": README_HAS_IT,
    "rocelab drill run DRILL [OPTIONS]": README_HAS_IT,
    "rocelab drill diff OLD NEW [OPTIONS]": DRILLS_HAVE_IT,
    "rocelab drill diff results/frr-8 results/frr-10 --out results/frr-8-to-10": DRILLS_HAVE_IT,
    "rocelab drill gate OLD NEW [OPTIONS]": NotRun("its example is"),
    "rocelab drill gate baseline/link-flap results/link-flap --figure lost_packets": NotRun(
        "needs two results: docs/ci.md has it in a workflow"
    ),
    "rocelab fault inject LAB KIND [KEY=VALUE]... [OPTIONS]": Run(
        (
            "rocelab fault inject zone-small carrier-down link=rtsw1:ctsw2",
            "rocelab fault list zone-small",
        ),
        shows=(r"carrier-down",),
    ),
    "rocelab fault list [LAB] [OPTIONS]": Run(
        ("rocelab fault list zone-small --json",), shows=(r"carrier-down",)
    ),
    "rocelab fault restore LAB [NUMBER] [OPTIONS]": Run(
        ("rocelab fault restore zone-small --all",), after=DOWN
    ),
    "rocelab fault kinds [OPTIONS]": Run(("rocelab fault kinds", "rocelab fault kinds --json")),
}

USAGE_RUNS_IT = NotRun("its usage line does")
EXAMPLE_RUNS: dict[str, Run | NotRun] = {
    **dict.fromkeys(
        (
            "rocelab labs",
            "rocelab doctor",
            "rocelab vtysh zone-small rtsw1 -c 'show bgp summary'",
            "rocelab drill run link-flap",
            "rocelab drill show silent-blackhole",
        ),
        README_HAS_IT,
    ),
    **dict.fromkeys(
        (
            "rocelab path zone-small --src srv1-1 --dst srv3-1 --sport 50000",
            "rocelab reach zone-small",
            "rocelab render zone-small --target containerlab -o zone-small",
            "rocelab image build",
        ),
        USAGE_RUNS_IT,
    ),
    "rocelab import cables.csv --servers 2 -o mine.yaml": Run(
        ("rocelab import cables.csv --servers 2 -o mine.yaml --force",),
        before=(write("cables.csv", "a_node,b_node\nleaf1,spine1\nleaf2,spine1\n"),),
        after=("rocelab plan mine.yaml",),
    ),
    "rocelab import switches/ --role 'bl*=core'": NotRun(
        "needs what switches exported: tests/unit/importing"
    ),
    "rocelab adopt mine.clab.yml": NEEDS_CONTAINERLAB,
    "rocelab release mine": NEEDS_CONTAINERLAB,
    "rocelab up zone-small": NotRun("`rocelab down` is followed by it"),
    "rocelab te mine": NotRun(
        "needs traffic under the scheme te: tests/integration/test_controller.py"
    ),
    "rocelab --host me@vm runs": NotRun("docs/remote.md has it"),
    "rocelab --host me@vm attach": NotRun("docs/remote.md has it"),
    "rocelab evidence zone-small rtsw1 --out bundles": USAGE_RUNS_IT,
    "rocelab fault inject zone-small carrier-down link=rtsw1:ctsw2 lasts=5s": Run(),
    "rocelab fault list zone-small": USAGE_RUNS_IT,
    "rocelab status zone-small": README_HAS_IT,
}
"""Examples of pages whose help has none."""

CHECKOUT = Path(__file__).parents[2]
REFERENCE_PAGES = tuple(
    f"docs/{command_page(words)}" for words, _, _ in command_words(command_line())
)


def _runs_of(page: str) -> dict[str, Run | NotRun]:
    typed = [command.text for command in commands(page, (CHECKOUT / page).read_text())]
    runs = {text: (EXAMPLE_RUNS | COMMAND_RUNS)[text] for text in typed if text in KNOWN}
    lines = {line for run in runs.values() if isinstance(run, Run) for line in run.lines}
    return runs | {text: USAGE_RUNS_IT for text in typed if text not in runs and text in lines}


KNOWN = EXAMPLE_RUNS.keys() | COMMAND_RUNS.keys()
REFERENCE_RUNS = {page: _runs_of(page) for page in REFERENCE_PAGES}
