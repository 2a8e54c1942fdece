"""Files that users name are written by `rocelab.base.outputs`: nothing else opens a file to
write."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "rocelab"

PLACES = {
    "base/outputs.py": "the one place for what users name",
    "base/files.py": "a lab's own files below /run/rocelab",
    "base/trust.py": "folders of code",
    "remote/host/bootstrap.py": "the kit's own folder on another machine; standard library only",
    "remote/host/runfolder.py": "the same",
    "remote/host/supervisor.py": "the same",
    "sim/sweep/run.py": "/proc/self/clear_refs",
    "base/compiling.py": "the lock of a folder of code",
    "base/library.py": "a stamp in a folder of code",
    "live/access.py": "the token below /run/rocelab",
    "lab/inuse.py": "locks below /run/rocelab",
    "base/interruption.py": "/dev/null",
    "cli/main.py": "/dev/null",
    "cli/host.py": "/dev/null",
    "agent/live.py": "counters below /run/rocelab",
    "agent/tcp.py": "/proc/sys",
    "faults/record.py": "below /run/rocelab",
    "linux/background.py": "logs below /run/rocelab",
    "linux/pidfile.py": "below /run/rocelab",
    "linux/namespaces.py": "mount points below /run/rocelab",
    "linux/probes.py": "/proc/sys",
    "linux/settings.py": "/proc/sys",
    "lab/adoption/adopt.py": "below /run/rocelab",
    "routing/daemons.py": "/sys/fs/cgroup, and below /run/rocelab",
    "dataplane/impairments/delayline.py": "below /run/rocelab",
    "dataplane/impairments/lineprocess.py": "/proc/sys, and below /run/rocelab",
    "dataplane/pfc/journal.py": "below /run/rocelab",
    "record.py": "locks below /run/rocelab",
}
"""Other modules that write, and what: nothing that a user names."""

WRITING = {"O_WRONLY", "O_RDWR", "O_CREAT"}
METHODS = {"write_text", "write_bytes", "mkdir", "makedirs", "touch", "symlink_to", "hardlink_to"}
CALLS = {
    ("os", name)
    for name in ("mkdir", "makedirs", "rename", "replace", "link", "symlink", "mknod", "mkfifo")
} | {("shutil", name) for name in ("copy", "copyfile", "copytree", "move")}


def writes(tree: ast.AST) -> Iterator[int]:
    """The lines that open, make or rename a file or a folder."""
    flags = set(WRITING)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and names_in(node.value) & WRITING:
            flags |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        owner = function.value if isinstance(function, ast.Attribute) else None
        module = owner.id if isinstance(owner, ast.Name) else None
        name = function.attr if isinstance(function, ast.Attribute) else None
        if isinstance(function, ast.Name):
            name = function.id
        if name in METHODS or (module, name) in CALLS:
            yield node.lineno
        elif name == "open" and module == "os":
            if flags & names_in(node):
                yield node.lineno
        elif name in ("open", "savefig") and is_to_write(node, name, is_method=owner is not None):
            yield node.lineno


def names_in(node: ast.AST) -> set[str]:
    return {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(node)
        if isinstance(node, ast.Attribute | ast.Name)
    }


def is_to_write(node: ast.Call, name: str, *, is_method: bool) -> bool:
    if name == "savefig":
        # A buffer, by its name, and not a path.
        target = node.args[0]
        return not (isinstance(target, ast.Name) and target.id in ("out", "content"))
    arguments = node.args if is_method else node.args[1:]
    modes = [*arguments[:1], *(key.value for key in node.keywords if key.arg == "mode")]
    texts = [mode.value for mode in modes if isinstance(mode, ast.Constant)]
    return any(
        isinstance(text, str) and set(text) & set("wax+") and len(text) < 4 for text in texts
    )


def test_only_the_one_place_writes_what_users_name() -> None:
    calls = {
        str(file.relative_to(PACKAGE)): lines
        for file in sorted(PACKAGE.rglob("*.py"))
        if (lines := list(writes(ast.parse(file.read_text()))))
    }
    others = {name: lines for name, lines in calls.items() if name not in PLACES}
    assert others == {}, "write it through rocelab.base.outputs"
    assert set(PLACES) - set(calls) == set(), "these write nothing any more"


def test_temporary_files_have_no_name_that_stays_after_sigkill() -> None:
    """`scratch_folder` removes those of killed commands; a TemporaryFile never has a name."""
    kinds = re.compile(r"\b(mkdtemp|mkstemp|TemporaryDirectory|(Named|Spooled)Temporary\w*)\(")
    paths = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if kinds.search(file.read_text())
    }
    assert paths == {"base/files.py", "remote/host/bootstrap.py"}, (
        "use rocelab.base.files.scratch_folder"
    )


def test_each_kind_of_writing_is_seen() -> None:
    for text in (
        "Path('x').write_text('')",
        "path.open('wb')",
        "open('x', 'a')",
        "open('x', mode='r+')",
        "os.open('x', os.O_WRONLY | os.O_TRUNC)",
        "flags = os.O_RDWR; os.open('x', flags)",
        "folder.mkdir()",
        "os.replace('a', 'b')",
        "figure.savefig(path)",
        "shutil.copy('a', 'b')",
    ):
        assert list(writes(ast.parse(text))) == [1], text
    for text in ("open('x')", "path.open('rb')", "figure.savefig(out)", "text.replace('a', 'b')"):
        assert list(writes(ast.parse(text))) == [], text
