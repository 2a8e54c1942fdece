"""Traces of requests: formats that are published, and files that nobody has seen."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from rocelab.base.errors import SpecError
from rocelab.jobs.serving.request_columns import Meaning, TimeUnit
from rocelab.jobs.serving.request_files import RequestTrace, read_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:04.0781490,110,27
"""
MOONCAKE = [
    {"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [1, 2, 3]},
    {"timestamp": 1500, "input_length": 1500, "output_length": 7, "hash_ids": [1, 2, 4]},
    {"timestamp": 3000, "input_length": 600, "output_length": 9, "hash_ids": [5, 2]},
]


def read(tmp_path: Path, content: str | bytes, **asked: object) -> RequestTrace:
    file = tmp_path / "trace"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_trace(file, **asked)  # type: ignore[arg-type]


def refusal(tmp_path: Path, content: str | bytes) -> str:
    with pytest.raises(SpecError) as error:
        read(tmp_path, content)
    return str(error.value)


def times(trace: RequestTrace) -> list[float]:
    assert trace.time_s is not None
    return [round(second, 6) for second in (trace.time_s - trace.time_s[0]).tolist()]


def test_azures_csv_has_dates_and_tokens(tmp_path: Path) -> None:
    trace = read(tmp_path, AZURE)
    assert times(trace) == [0, 0.052, 0.098189]
    assert trace.prompt.tolist() == [4808, 3180, 110]
    assert trace.answer.tolist() == [10, 8, 27]
    assert not trace.has_blocks and not trace.warnings


@pytest.mark.parametrize("packed", [False, True])
def test_mooncakes_lines_have_milliseconds_and_reuse_of_leading_blocks(
    tmp_path: Path, packed: bool
) -> None:
    content = "\n".join(map(json.dumps, MOONCAKE)).encode()
    trace = read(tmp_path, gzip.compress(content) if packed else content)
    assert times(trace) == [0, 1.5, 3]
    # Block 2 was there before, but not behind block 5.
    assert trace.reused.tolist() == [0, 1024, 0]
    assert not trace.warnings


def test_a_list_of_objects_is_read_as_lines_are(tmp_path: Path) -> None:
    lines = read(tmp_path, "\n".join(map(json.dumps, MOONCAKE)))
    whole = read(tmp_path, json.dumps(MOONCAKE, indent=1))
    assert times(lines) == times(whole)
    assert lines.reused.tolist() == whole.reused.tolist()


def test_the_result_of_vllms_benchmark_has_a_list_for_each_column(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        json.dumps(
            {
                "backend": "vllm",
                "input_lens": [10, 20],
                "output_lens": [1, 2],
                "start_times": [5.0, 5.5],
                "errors": ["", ""],
            }
        ),
    )
    assert trace.prompt.tolist() == [10, 20]
    assert times(trace) == [0, 0.5]


def test_burstgpts_csv_counts_seconds_and_may_say_that_a_request_failed(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n"
        "45,ChatGPT,1087,0,1087,Conversation log\n",
    )
    assert trace.answer.tolist() == [18, 0]
    assert times(trace) == [0, 40]
    assert "taken for seconds" in trace.warnings[0]


def test_blocks_of_another_size_are_told_by_their_number(tmp_path: Path) -> None:
    rows = [
        {
            "chat_id": 1,
            "timestamp": 0.5,
            "input_length": 40,
            "output_length": 1,
            "hash_ids": [1, 2, 3],
        },
        {
            "chat_id": 2,
            "timestamp": 1.5,
            "input_length": 64,
            "output_length": 1,
            "hash_ids": [1, 2, 9, 8],
        },
    ]
    trace = read(tmp_path, "\n".join(map(json.dumps, rows)))
    assert trace.reused.tolist() == [0, 32]
    assert times(trace) == [0, 1]


@pytest.mark.parametrize(
    ("header", "values", "expected"),
    [
        ("arrival_time_us", ("0", "2000000"), 2.0),
        ("arrivalTimeMs", ("0", "2000"), 2.0),
        ("Timestamp (ns)", ("0", "2000000000"), 2.0),
        ("timestamp", ("1700000000", "1700000002"), 2.0),
        ("timestamp", ("1700000000000", "1700000002000"), 2.0),
        ("ts", ("1700000000000000000", "1700000002000000000"), 2.0),
        ("start_time", ("2024-05-01T00:00:00Z", "2024-05-01T02:00:02+02:00"), 2.0),
    ],
)
def test_times_are_read_in_the_unit_that_they_show(
    tmp_path: Path, header: str, values: tuple[str, str], expected: float
) -> None:
    rows = "".join(f"{value},7,8\n" for value in values)
    trace = read(tmp_path, f"{header},prompt_tokens,completion_tokens\n{rows}")
    assert times(trace) == pytest.approx([0, expected])
    assert not trace.warnings


def test_a_user_names_columns_and_the_unit(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        "wann;frage;antwort\n0;7;8\n30;9;10\n",
        columns={Meaning.TIME: "wann", Meaning.PROMPT: "frage", Meaning.OUTPUT: "antwort"},
        unit=TimeUnit.MS,
    )
    assert times(trace) == [0, 0.03]
    assert trace.answer.tolist() == [8, 10]


def test_a_mark_of_spreadsheets_blank_lines_and_windows_line_ends_do_not_matter(
    tmp_path: Path,
) -> None:
    trace = read(tmp_path, "\ufeff" + AZURE.replace("\n", "\r\n") + "\r\n\r\n")
    assert trace.prompt.tolist() == [4808, 3180, 110]


def test_the_first_requests_are_read_and_no_others(tmp_path: Path) -> None:
    trace = read(tmp_path, AZURE + "not a line\n", first=2)
    assert trace.prompt.tolist() == [4808, 3180]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "a header only"),
        (AZURE + "2023-11-16 18:17:05,nan,3\n", ":5: ContextTokens: expected a whole number"),
        (AZURE + "2023-11-16 18:17:05,-4,3\n", "got '-4'"),
        (AZURE + "2023-11-16 18:17:05,4.5,3\n", "got '4.5'"),
        (AZURE + "2023-11-16 18:17:05,1000000000000,3\n", "from 0 to 100,000,000"),
        (AZURE + "2023-11-16 18:17:05,,3\n", "ContextTokens is empty"),
        (AZURE + "2023-11-16 18:17:05,4\n", "2 columns, and the header has 3"),
        (AZURE + "16.11.2023 18:17,4,3\n", "expected a time"),
        (AZURE + "7,4,3\n", "some are numbers, others dates"),
        ("ts,ContextTokens,GeneratedTokens,ts\n1,2,3,4\n", "several columns are called 'ts'"),
        ("a,b\n1,2\n", "no column has the tokens of the prompt and the output"),
        ('{"conversations": [{"from": "human"}]}\n', "count their tokens"),
        (
            '{"input_length": 5, "output_length": 6}\n{"input_length": 5}\n',
            ":2: output_length is missing",
        ),
        ('{"input_length": 5, "output_length": 6}\n[]\n', ":2: expected an object"),
        ('{"input_length": 5, "output_length": 6}\n{"inp\n', ":2: not JSON"),
        ('{"input_length": true, "output_length": 6}\n', "expected a whole number"),
        ('{"input_length": NaN, "output_length": 6}\n', "expected a whole number"),
        ('{"input_lens": [5], "output_lens": [6, 7]}', "differ in length"),
        ("[1, 2]", "expected a list of objects"),
        (gzip.compress(AZURE.encode())[:-20], "not a whole gzip file"),
        (b"\xff\xfea\x00", "UTF-16"),
        (b"a,b\0\n", "binary"),
        (AZURE.encode() + b"\xe4,1,2\n", "not UTF-8"),
        (b"x" * (2**22 + 2), "a line of more than"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(
    tmp_path: Path, content: str | bytes, expected: str
) -> None:
    assert expected in refusal(tmp_path, content)


def test_all_wrong_lines_are_listed_but_not_thousands(tmp_path: Path) -> None:
    text = refusal(tmp_path, AZURE + "x,y,z\n" * 5000)
    assert text.count("expected") == 50


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(SpecError, match="cannot be read"):
            read_trace(path)


def test_what_is_kept_of_a_line_does_not_grow_with_it(tmp_path: Path) -> None:
    text = "y" * 100_000
    rows = "".join(f"{number},1,2,{text}\n" for number in range(20))
    trace = read(tmp_path, f"timestamp_s,isl,osl,text\n{rows}")
    assert np.array_equal(trace.prompt, np.ones(20))
