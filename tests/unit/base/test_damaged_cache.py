"""A cache of compiled code with damaged files: the code is compiled anew."""

from __future__ import annotations

import errno
from pathlib import Path

import numba
import pytest
from numba.core.caching import IndexDataCacheFile

from rocelab.base.compiling import compiled_in


def three_times(number: int) -> int:
    return 3 * number


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x80\x04\x95"])
@pytest.mark.parametrize("files", ["*.nbi", "*.nbc"])
def test_a_damaged_file_is_written_anew(tmp_path: Path, files: str, content: bytes) -> None:
    signature = numba.int64(numba.int64)
    compiled_in(tmp_path, three_times, signature)
    for file in [*tmp_path.rglob(files)]:
        file.write_bytes(content)
    assert compiled_in(tmp_path, three_times, signature)(2) == 6
    assert all(file.read_bytes() != content for file in tmp_path.rglob(files))


def test_a_damaged_file_that_can_not_be_replaced_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    signature = numba.int64(numba.int64)
    compiled_in(tmp_path, three_times, signature)
    (index,) = tmp_path.rglob("*.nbi")
    index.write_bytes(b"")
    monkeypatch.setattr(IndexDataCacheFile, "flush", refuse)
    assert compiled_in(tmp_path, three_times, signature)(2) == 6
    assert index.read_bytes() == b""
