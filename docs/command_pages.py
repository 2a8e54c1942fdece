"""What the page of a command has besides its help: an example, pages to go on with, and other words
that a reader may look for. Commands are named by their words, such as `drill run`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommandPage:
    """Additions to one page.

    example: lines to type, "" where the help has some; see: pages of docs/, by file name;
    other_words: what readers and other tools call it, for the site's search.
    """

    example: str = ""
    see: tuple[str, ...] = ()
    other_words: tuple[str, ...] = ()


COMMAND_PAGES: dict[str, CommandPage] = {
    "labs": CommandPage("rocelab labs", ("fabrics.md", "spec.md"), ("topologies", "catalogue")),
    "plan": CommandPage(
        "rocelab plan zone-small", ("spec.md", "fabrics.md"), ("addresses", "inventory", "dry run")
    ),
    "render": CommandPage(
        "rocelab render zone-small --target containerlab -o zone-small",
        ("containerlab.md", "clabernetes.md"),
        ("export", "generate", "configurations", "bgpd.conf"),
    ),
    "graph": CommandPage(
        "rocelab graph tiny --format mermaid", ("fabrics.md",), ("draw", "picture", "diagram")
    ),
    "import": CommandPage(
        "",
        ("containerlab.md", "adopt.md"),
        ("convert", "netlab", "containerlab topology", "cables", "graphviz", "SONiC", "LLDP"),
    ),
    "schema": CommandPage("", ("spec.md",), ("completion", "validate", "YAML")),
    "doctor": CommandPage(
        "rocelab doctor", ("setup.md", "troubleshooting.md"), ("check", "requirements", "verify")
    ),
    "adopt": CommandPage(
        "rocelab adopt mine.clab.yml", ("adopt.md",), ("attach", "containerlab", "existing lab")
    ),
    "release": CommandPage("rocelab release mine", ("adopt.md",), ("forget", "detach", "unadopt")),
    "up": CommandPage(
        "rocelab up zone-small",
        ("spec.md", "runtime.md"),
        ("start", "create", "deploy", "boot", "launch", "run a lab"),
    ),
    "down": CommandPage(
        "rocelab down zone-small",
        ("troubleshooting.md",),
        ("stop", "destroy", "delete", "remove", "clean up", "tear down", "shut down", "kill"),
    ),
    "list": CommandPage("rocelab list", ("cli.md",), ("ls", "ps", "running labs")),
    "status": CommandPage(
        "rocelab status zone-small", ("health.md", "cli.md"), ("state", "inspect", "summary")
    ),
    "shell": CommandPage(
        "rocelab shell zone-small rtsw1", ("cli.md",), ("login", "ssh", "console", "bash", "enter")
    ),
    "live": CommandPage(
        "rocelab live zone-small",
        ("live.md",),
        ("dashboard", "browser", "GUI", "web page", "watch"),
    ),
    "events": CommandPage(
        "rocelab events zone-small --json",
        ("live.md", "health.md"),
        ("watch", "follow", "monitor", "log", "tail", "journal"),
    ),
    "inventory": CommandPage(
        "rocelab inventory mine --format ansible > inventory.yml",
        ("remote.md",),
        ("Ansible", "hosts", "ssh config", "Nornir", "management addresses"),
    ),
    "vtysh": CommandPage(
        "rocelab vtysh zone-small rtsw1 -c 'show bgp summary'",
        ("routing.md",),
        ("router", "show commands", "FRR", "birdc"),
    ),
    "cli": CommandPage("rocelab cli zone-small", ("runtime.md",), ("Mininet", "prompt")),
    "path": CommandPage(
        "rocelab path zone-small --src srv1-1 --dst srv3-1 --sport 50000",
        ("path.md", "hashing.md"),
        ("traceroute", "route", "ECMP", "which link"),
    ),
    "reach": CommandPage(
        "rocelab reach zone-small", ("cli.md",), ("ping all", "connectivity", "mesh")
    ),
    "scheme": CommandPage(
        "rocelab scheme zone-small e-ecmp",
        ("schemes.md", "compare.md"),
        ("load balancing", "ECMP", "spraying", "flowlets"),
    ),
    "te": CommandPage("rocelab te mine", ("te.md",), ("traffic engineering", "controller")),
    "capture": CommandPage("", ("cli.md",), ("tcpdump", "pcap", "Wireshark", "sniff", "trace")),
    "runs": CommandPage("rocelab --host me@vm runs", ("remote.md",), ("jobs on another machine",)),
    "attach": CommandPage(
        "rocelab --host me@vm attach", ("remote.md",), ("resume", "reconnect", "continue")
    ),
    "exec": CommandPage(
        "rocelab exec zone-small rtsw1 -- ip -brief link", ("cli.md",), ("command in a node",)
    ),
    "run": CommandPage(
        "",
        ("programs.md",),
        ("torchrun", "mpirun", "srun", "launch", "iperf3", "own program", "PyTorch", "application"),
    ),
    "ping": CommandPage("", ("cli.md",), ("connectivity", "ICMP")),
    "traffic": CommandPage(
        "",
        ("traffic.md", "training.md"),
        ("iperf", "perftest", "ib_write_bw", "nccl-tests", "allreduce", "load", "generator"),
    ),
    "diagnose": CommandPage("", ("forensics.md",), ("slow job", "root cause", "straggler")),
    "compare": CommandPage("", ("compare.md", "schemes.md"), ("benchmark", "load balancing")),
    "predict": CommandPage("", ("compare.md", "hashing.md"), ("load", "collisions", "hash")),
    "simulate": CommandPage("", ("simulate.md", "training.md"), ("model", "cluster", "estimate")),
    "whatif": CommandPage("", ("whatif.md",), ("maintenance", "drain", "failure", "cost")),
    "longrun": CommandPage("", ("whatif.md",), ("availability", "MTBF", "months", "goodput")),
    "sweep": CommandPage("", ("sweep.md",), ("parameters", "grid", "design space", "batch")),
    "requests": CommandPage(
        "",
        ("inference.md",),
        ("LLM trace", "Azure", "Mooncake", "BurstGPT", "KV cache", "arrivals"),
    ),
    "reference": CommandPage("", ("traces.md", "simulate.md"), ("nccl-tests", "calibrate")),
    "health": CommandPage(
        "rocelab health zone-small --once",
        ("health.md",),
        ("monitor", "watch", "Prometheus", "SLI"),
    ),
    "evidence": CommandPage(
        "rocelab evidence zone-small rtsw1 --out bundles",
        ("health.md",),
        ("logs", "support bundle", "tech-support", "snapshot"),
    ),
    "drill list": CommandPage("rocelab drill list", ("drills.md",), ("scenarios", "tests")),
    "drill show": CommandPage(
        "rocelab drill show silent-blackhole", ("drills.md",), ("explain", "describe", "dry run")
    ),
    "drill run": CommandPage(
        "rocelab drill run link-flap",
        ("drills.md", "results.md"),
        ("test", "scenario", "chaos", "outage", "convergence"),
    ),
    "drill diff": CommandPage("", ("drills.md", "ci.md"), ("regression", "baseline", "compare")),
    "drill gate": CommandPage("", ("ci.md", "drills.md"), ("regression", "baseline", "fail")),
    "fault inject": CommandPage(
        "rocelab fault inject zone-small carrier-down link=rtsw1:ctsw2 lasts=5s",
        ("faults.md", "drills.md"),
        ("break", "fail", "link down", "chaos", "kill", "loss", "delay", "impairment"),
    ),
    "fault list": CommandPage(
        "rocelab fault list zone-small", ("faults.md",), ("what is broken", "active faults")
    ),
    "fault restore": CommandPage(
        "rocelab fault restore zone-small --all",
        ("faults.md",),
        ("repair", "heal", "undo", "clear", "mend"),
    ),
    "fault kinds": CommandPage(
        "rocelab fault kinds", ("faults.md", "drills.md"), ("failures", "what can break")
    ),
    "image build": CommandPage(
        "rocelab image build", ("runtime.md", "containerlab.md"), ("container", "Docker", "Podman")
    ),
}
