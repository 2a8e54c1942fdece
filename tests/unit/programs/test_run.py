"""The end of a run of programs."""

from __future__ import annotations

from rocelab.programs.run import _while_it_works
from rocelab.programs.running import OutputLine


def test_a_reader_that_has_gone_does_not_hasten_the_end_of_programs() -> None:
    lines = [OutputLine(0, "stdout", text, 0) for text in (b"one\n", b"two\n", b"three\n")]
    printed: list[str] = []

    def show(line: OutputLine) -> None:
        if line.text == "two":
            raise BrokenPipeError
        printed.append(line.text)

    on_line = _while_it_works(show)
    for line in lines:
        on_line(line)
    assert printed == ["one"]
