"""The library that bgpd preloads, tried with libraries that are not FRR's, and what is recorded."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rocelab.linux import clang
from rocelab.routing.frr.kind import FrrMemory
from rocelab.routing.frr.memory import (
    FLAGS,
    PLAIN,
    SOURCE,
    Memory,
    read_memory,
    tried,
    write_memory,
)

LIBRARY = Path("/run/rocelab/tiny/nodes/rtsw1/bin/ringbuf.so")

RINGS = """
#include <stdlib.h>
#include <string.h>
struct ringbuf { size_t size, start, used; unsigned char *data; };
struct ringbuf *ringbuf_new(size_t size)
{
    struct ringbuf *ring = calloc(1, sizeof(*ring));
    ring->size = size;
    ring->data = calloc(1, size);
    return ring;
}
void ringbuf_del(struct ringbuf *ring) { free(ring->data); free(ring); }
size_t ringbuf_remain(struct ringbuf *ring) { return ring->used; }
size_t ringbuf_space(struct ringbuf *ring) { return ring->size - ring->used; }
size_t ringbuf_put(struct ringbuf *ring, const void *bytes, size_t size)
{
    size_t taken = size < ringbuf_space(ring) ? size : ringbuf_space(ring);
    for (size_t at = 0; at < taken; at++)
        ring->data[(ring->start + ring->used++) % ring->size] = ((const unsigned char *)bytes)[at];
    return taken;
}
size_t ringbuf_peek(struct ringbuf *ring, size_t offset, void *bytes, size_t size)
{
    size_t at = 0;
    for (; at < size && offset + at < ring->used; at++)
        ((unsigned char *)bytes)[at] = ring->data[(ring->start + offset + at) % ring->size];
    return at;
}
size_t ringbuf_get(struct ringbuf *ring, void *bytes, size_t size)
{
    size_t taken = ringbuf_peek(ring, 0, bytes, size);
    ring->start = (ring->start + taken) % ring->size;
    ring->used -= taken;
    return taken;
}
"""
RESET = "void ringbuf_reset(struct ringbuf *ring) { ring->start = ring->used = 0; }\n"
WIPE = """void ringbuf_wipe(struct ringbuf *ring)
{ memset(ring->data, 0, ring->size); ring->start = ring->used = 0; }
"""
FORGETS_HALF = "void ringbuf_reset(struct ringbuf *ring) { ring->used /= 2; }\n"
WIPES_LESS = "void ringbuf_wipe(struct ringbuf *ring) { ring->used = ring->used > 48; }\n"
MAIN = "int main(void) { return 0; }\n"

Try = Callable[[str], Memory]


@pytest.fixture
def try_rings(tmp_path: Path) -> Try:
    """Tries the library with a program that has these functions for rings."""
    library = tmp_path / "ringbuf.so"
    subprocess.run(["clang", *FLAGS, SOURCE, "-o", library], check=True)

    def attempt(source: str) -> Memory:
        program, libfrr = tmp_path / "bgpd", tmp_path / "libfrr.so"
        for text, options in (
            (source, ("-shared", "-fPIC", "-o", libfrr)),
            (MAIN, ("-Wl,--no-as-needed", "-Wl,-rpath", "-Wl,.", "-L.", "-lfrr", "-o", program)),
        ):
            command = ["clang", "-x", "c", "-", "-x", "none", *options]
            subprocess.run(command, input=text, text=True, check=True, cwd=tmp_path)

        def run(variables: Mapping[str, str]) -> str:
            return subprocess.run(
                [program], capture_output=True, text=True, env={**variables}, cwd=tmp_path
            ).stderr

        return tried(run, library)

    return attempt


def test_rings_that_are_used_alike_whether_wiped_or_reset_let_bgpd_preload(try_rings: Try) -> None:
    assert try_rings(RINGS + RESET + WIPE) == Memory(FrrMemory.LEAN, preloads=True)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (RINGS + FORGETS_HALF + WIPE, "a ring that is reset differs from one that is wiped"),
        (RINGS + RESET + WIPES_LESS, "a ring that is reset differs from one that is wiped"),
        (RINGS + RESET, "there is no ringbuf_wipe"),
        (RINGS + WIPE, "there is no ringbuf_reset"),
        ("int nothing;", "there is no ringbuf_new"),
    ],
    ids=["reset differs", "wipe differs", "no wipe", "no reset", "no rings"],
)
def test_rings_of_another_kind_are_left_alone(try_rings: Try, source: str, problem: str) -> None:
    memory = try_rings(source)
    assert memory == Memory(FrrMemory.LEAN, problem=problem)
    assert memory.text == f"lean, but {problem}"
    assert problem in (memory.note or "")
    assert "LD_PRELOAD" not in memory.variables("bgpd", LIBRARY)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("", "bgpd does not load a library that is given to it"),
        (
            "ERROR: ld.so: object 'ringbuf.so' from LD_PRELOAD cannot be preloaded: ignored.\n",
            "ERROR: ld.so: object 'ringbuf.so' from LD_PRELOAD cannot be preloaded: ignored.",
        ),
        ("rocelab: ", "bgpd ends while its rings are tried"),
        ("rocelab: there is no ringbuf_new\nrocelab: rings differ\n", "lean, but rings differ"),
    ],
    ids=["silent", "refused", "killed in the check", "behind a wrapper"],
)
def test_a_bgpd_that_does_not_say_that_rings_agree_gets_no_library(said: str, problem: str) -> None:
    memory = tried(lambda variables: said, LIBRARY)
    assert (memory.preloads, memory.kind) == (False, FrrMemory.LEAN)
    assert problem in memory.text


def test_a_wrapper_of_bgpd_may_load_the_library_too() -> None:
    said = "rocelab: there is no ringbuf_new\nrocelab: rings agree\n"
    assert tried(lambda variables: said, LIBRARY).preloads


def test_only_bgpd_preloads_and_plain_changes_nothing() -> None:
    lean = Memory(FrrMemory.LEAN, preloads=True)
    assert lean.variables("bgpd", LIBRARY)["LD_PRELOAD"] == str(LIBRARY)
    assert lean.variables("zebra", LIBRARY).keys() == {"MALLOC_MMAP_THRESHOLD_"}
    assert PLAIN.variables("bgpd", LIBRARY) == {}
    assert (PLAIN.text, PLAIN.note) == ("plain", None)


def test_a_labs_memory_is_in_its_record_and_a_lab_without_one_is_plain(tmp_path: Path) -> None:
    assert read_memory(tmp_path) == PLAIN
    for memory in (PLAIN, Memory(FrrMemory.LEAN, problem="x"), Memory(FrrMemory.LEAN, True)):
        write_memory(tmp_path, memory)
        assert read_memory(tmp_path) == memory


SOME = "int one(void) { return 1; }\n"
OBJECT = ("-c",)


def test_an_object_is_compiled_once_and_again_when_its_source_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "some.c"
    source.write_text(SOME)
    first = clang.compiled(source, OBJECT, tmp_path / "cache")
    assert first.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr("rocelab.linux.clang.shutil.which", lambda _: None)
    assert clang.compiled(source, OBJECT, tmp_path / "cache") == first
    source.write_text(SOME + SOME.replace("one", "two"))
    with pytest.raises(clang.CompileError, match="clang is missing"):
        clang.compiled(source, OBJECT, tmp_path / "cache")


def test_no_object_comes_from_a_folder_that_others_may_change(tmp_path: Path) -> None:
    source = tmp_path / "some.c"
    source.write_text(SOME)
    clang.compiled(source, OBJECT, tmp_path / "cache")
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(clang.CompileError, match=r"nothing is run from .*cache"):
        clang.compiled(source, OBJECT, tmp_path / "cache")
