"""nccl-tests' and rccl-tests' output in every format, its checks, and the fit to it."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.errors import InputError
from rocelab.jobs.collectives import Pattern
from rocelab.jobs.performance import PerformanceRow, nccl_table
from rocelab.sim.traces.nccl_tests import NcclTest, read_nccl_tests
from rocelab.sim.traces.reference import compare, fit_alpha_beta
from tests.helpers.nccl_sample import nccl_output

ALLREDUCE = Pattern.ALLREDUCE


def read(text: str, pattern: Pattern | None = ALLREDUCE, ranks: int | None = 8) -> NcclTest:
    return read_nccl_tests(text, "x.txt", pattern=pattern, ranks=ranks)


def refusal(text: str, pattern: Pattern | None = ALLREDUCE, ranks: int | None = 8) -> str:
    with pytest.raises(InputError) as error:
        read(text, pattern, ranks)
    return error.value.message


# --- nccl-tests --------------------------------------------------------------------------------

HALF_NAMES = "    time   algbw   busbw #wrong"
NAMES = "#       size         count      type   redop    root "
LEADING = "   268435456      67108864     float     sum      -1 "
HALF, OTHER_HALF = "  1119.8  239.71  419.49      0", "  1117.4  240.24  420.42      0"
HEADER = f"#  out-of-place  in-place\n{NAMES}{HALF_NAMES} {HALF_NAMES}\n#  (B)  (elements)  (us)\n"
BOTH = f"{LEADING}{HALF} {OTHER_HALF}\n"


def test_a_run_on_8_gpus_is_read() -> None:
    rows = read_nccl_tests(nccl_output(), pattern=ALLREDUCE, ranks=8).rows
    assert [row.size_bytes for row in rows] == [2**28, 2**29, 2**30, 2**31]
    last = rows[-1]
    assert (last.count, last.type, last.redop, last.root) == (536870912, "float", "sum", -1)
    assert last.out_of_place and last.in_place
    assert (last.out_of_place.time_us, last.out_of_place.busbw_gbs) == (7983.5, 470.73)
    assert (last.in_place.time_us, last.in_place.wrong) == (7985.2, 0)


@pytest.mark.parametrize(
    "text",
    [
        HEADER + BOTH,
        "".join(f"[1,0]<stdout>:{line}\n" for line in (HEADER + BOTH).splitlines()),
        "".join(f"3: {line}\n" for line in (HEADER + BOTH).splitlines()),
        HEADER + BOTH + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 419.9\n#\n"
        "# Collective test concluded: all_reduce_perf\n"
        "# nccl-tests version 2.18.0 nccl-headers=22907 nccl-library=22907\n",
        HEADER + LEADING + HALF + "\n",
        NAMES + HALF_NAMES + "\n" + LEADING + HALF + "\n",
        "#  size count type redop time algbw busbw error time algbw busbw error\n"
        "268435456 67108864 float sum 1119.8 239.71 419.49 1e-06 1117.4 240.24 420.42 1e-06\n",
        "#  size count type time algbw busbw error time algbw busbw error\n"
        "268435456 67108864 float 1119.8 239.71 419.49 0e+00 1117.4 240.24 420.42 0e+00\n",
        (HEADER + BOTH).replace("      0", "    N/A"),
        ",,,,,out-of-place,,,,in-place,,,\n"
        "size,count,type,redop,root,time,algbw,busbw,#wrong,time,algbw,busbw,#wrong\n"
        "(B),(elements),,,,(us),(GB/s),(GB/s),,(us),(GB/s),(GB/s),\n"
        "268435456,67108864,float,sum,-1,1119.8,239.71,419.49,0,1117.4,240.24,420.42,N/A\n",
    ],
    ids=(
        "plain",
        "mpirun",
        "srun",
        "trailer",
        "one half",
        "one table",
        "no root",
        "no redop",
        "N/A",
        "csv",
    ),
)
def test_every_shape_of_nccl_tests_output_is_read(text: str) -> None:
    (row,) = read_nccl_tests(text, pattern=ALLREDUCE, ranks=8).rows
    assert (row.size_bytes, row.count, row.type) == (268435456, 67108864, "float")
    assert row.timing.time_us == 1119.8
    assert (row.timing.algbw_gbs, row.timing.busbw_gbs) == (239.71, 419.49)
    assert row.in_place is None or row.in_place.time_us == 1117.4


def test_old_errors_and_unchecked_rows_are_told_apart() -> None:
    old = "# size count type time algbw busbw error\n8 2 float 30.1 0.00 0.00 1e-06\n"
    assert read(old).rows[0].timing.wrong == 1e-06
    assert read(old.replace("1e-06", "N/A")).rows[0].timing.wrong is None
    beyond = refusal(old.replace("1e-06", "4e+00"))
    assert "x.txt:2: the check of this row failed: #wrong is 4" in beyond


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.txt: no row of nccl-tests in it"),
        (BOTH, "x.txt:1: a row before the line with the names of the columns"),
        (HEADER + LEADING + HALF + " 1117.4\n", "x.txt:4: expected 13 columns, found 10"),
        (
            HEADER + BOTH.replace("1119.8", "nan"),
            "x.txt:4: expected time to be 0 or more, found 'nan'",
        ),
        (HEADER + BOTH.replace("1119.8", "-1.0"), "x.txt:4: expected time to be 0 or more"),
        (
            HEADER + BOTH.replace("1119.8", "0.00"),
            "x.txt:4: expected a time above 0 us, found 0.00",
        ),
        (HEADER + BOTH.replace("239.71", "2x9.71"), "x.txt:4: expected a number as algbw"),
        (HEADER + BOTH.replace("-1 ", "-- "), "x.txt:4: expected a whole number as root"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read(text)
    assert message in error.value.message
    assert "hint" in error.value.message


def test_our_own_tables_read_back() -> None:
    sizes = (2**10, 2**20, 2**33)
    made = [
        PerformanceRow(Pattern.ALLREDUCE, 8, size, 12_345.0 + size / 40, wrong_bytes=0)
        for size in sizes
    ]
    text = nccl_table(made, iterations=5, warmup_iterations=1)
    rows = read(text).rows
    assert [row.size_bytes for row in rows] == list(sizes)
    for row, theirs in zip(made, rows, strict=True):
        assert theirs.timing.time_us == pytest.approx(row.time_ns / 1000, rel=1e-2)
        assert theirs.timing.busbw_gbs == pytest.approx(row.busbw_gbs, abs=0.005, rel=1e-2)
        assert theirs.in_place is None


# --- checks ------------------------------------------------------------------------------------

START = "# nThread 1 nGpus 1 minBytes 8 maxBytes 1048576 step: 4(factor)\n# Using devices\n"
TITLES = NAMES + HALF_NAMES + " " + HALF_NAMES + "\n"


def device(rank: int, group: int = 0, name: str = "gpu") -> str:
    return f"#  Rank {rank:2d} Group {group:2d} Pid {100 + rank} on {name} device 0 [0x0] H100\n"


def devices(ranks: int) -> str:
    return START + "".join(map(device, range(ranks)))


def line(
    size: int,
    time_us: float,
    factor: float = 1.75,
    wrong: str = "0",
    redop: str = "sum",
    root: int = -1,
) -> str:
    algbw = size / time_us / 1000
    half = f"{time_us:7.2f} {algbw:7.2f} {algbw * factor:7.2f} {wrong:>6}"
    return f"{size:12d} {size // 4:12d} float {redop} {root} {half} {half}\n"


def test_rows_of_no_bytes_are_left_out_and_that_is_said() -> None:
    test = read(TITLES + line(0, 21.0) * 3 + line(2**20, 60.0) + line(2**22, 100.0))
    assert [row.size_bytes for row in test.rows] == [2**20, 2**22]
    assert test.notes == ("3 rows of 0 bytes left out",)
    assert "no row has a size" in refusal(TITLES + line(0, 21.0))


def test_pattern_and_ranks_are_taken_from_the_log_and_must_agree_with_it() -> None:
    log = "# Collective test starting: all_reduce_perf\n" + devices(8) + TITLES + line(2**20, 60)
    assert (read(log, None, None).pattern, read(log, None, None).ranks) == (ALLREDUCE, 8)
    assert "x.txt:11: it lists 8 ranks, not 64" in refusal(log, ranks=64)
    assert "x.txt:1: a test of allreduce, not of an alltoall" in refusal(log, Pattern.ALLTOALL)
    assert "does not name the collective" in refusal(TITLES + line(8, 9.0), None)
    unlisted = refusal(TITLES + line(2**20, 60.0), ranks=None)
    assert "--ranks 8, which the rows fit" in unlisted


def test_a_list_of_devices_that_is_cut_is_no_number_of_ranks() -> None:
    cut = START.replace("nGpus 1", "nGpus 8") + device(0) + device(1)
    log = cut + TITLES + line(2**20, 60.0)
    assert read(log).ranks == 8
    assert "does not list all of its ranks" in refusal(log, ranks=None)
    assert "8 in each process" in refusal(log, ranks=12)


@pytest.mark.parametrize("ranks", [2, 4, 7, 9, 16, 64])
def test_ranks_that_the_bandwidths_contradict_are_refused_by_their_rows(ranks: int) -> None:
    message = refusal(TITLES + line(8, 9.0) + line(2**20, 60.0), ranks=ranks)
    assert f"x.txt:3: busbw is 30.58 GB/s at an algbw of 17.48; an allreduce of {ranks} ranks" in (
        message
    )
    assert "the rows fit 8 ranks" in message
    assert "x.txt:2" not in message


@pytest.mark.parametrize(
    ("pattern", "row"),
    [
        (ALLREDUCE, line(2**20, 60.0, 7 / 8, redop="none")),
        (Pattern.ALLGATHER, line(2**20, 60.0)),
        (Pattern.REDUCESCATTER, line(2**20, 60.0, 7 / 8, redop="none")),
        (Pattern.ALLTOALL, line(2**20, 60.0, 7 / 8, redop="none", root=0)),
        (Pattern.BROADCAST, line(2**20, 60.0, 7 / 8, redop="none", root=0)),
    ],
)
def test_another_collective_is_refused(pattern: Pattern, row: str) -> None:
    assert "x.txt:2: " in refusal(TITLES + row, pattern)


@pytest.mark.parametrize(
    ("pattern", "ranks", "row"),
    [
        (Pattern.BROADCAST, 2, line(2**20, 60.0, 1.0)),  # of an allreduce, or of a sendrecv
        (Pattern.BROADCAST, 2, line(2**20, 60.0, 1.0, redop="none")),
        (Pattern.ALLGATHER, 8, line(2**20, 60.0, 7 / 8)),
        (Pattern.ALLTOALLV, 8, line(2**20, 60.0, 7 / 8, redop="max")),
        (Pattern.GATHER, 8, line(2**20, 60.0, 7 / 8, redop="none")),
    ],
)
def test_redop_and_root_are_those_of_the_collective(pattern: Pattern, ranks: int, row: str) -> None:
    assert "not of a" in refusal(TITLES + row, pattern, ranks)


def test_elements_are_a_part_of_the_size_for_each_rank() -> None:
    """rccl#1490: an allgather of 32 ranks, whose bandwidths have too few digits to say so."""
    row = "65536 512 float none -1 107.5 0.61 0.59 0 105.6 0.62 0.60 0\n"
    assert read(TITLES + row, Pattern.ALLGATHER, 32).ranks == 32
    assert "--ranks 32, which the rows fit" in refusal(TITLES + row, Pattern.ALLGATHER, None)
    message = refusal(TITLES + row, Pattern.ALLGATHER, 31)
    assert "x.txt:2: size is 65,536 B, but count is 512 of type float" in message
    uncounted = TITLES.replace("count", "elems") + row
    assert "say how many: --ranks N" in refusal(uncounted, Pattern.ALLGATHER, None)


@pytest.mark.parametrize(
    "failure",
    [
        "node1: Test NCCL failure common.cu:961 'unhandled system error / '\n",
        "gpu7: Test CUDA failure common.cu:1103 'out of memory'\n",
        " .. node1 pid 386753: Test failure common.cu:405\n",
    ],
)
def test_a_test_that_an_error_ended_is_refused(failure: str) -> None:
    log = TITLES + line(2**20, 60.0) + line(2**22, 100.0)
    assert "x.txt:4: the test ended here, by an error" in refusal(log + failure)
    assert read(log + "node1:1:2 [0] NCCL INFO comm 0x1 - Init COMPLETE\n").rows


@pytest.mark.parametrize("cut", ["  {size}  {count}  float", LEADING, LEADING + "  1119.8"])
def test_a_row_that_was_cut_off_is_refused(cut: str) -> None:
    cut = cut.format(size=2**28, count=2**26)
    assert "x.txt:3: expected 13 columns, found" in refusal(TITLES + line(2**20, 60.0) + cut)
    times = "x.txt:3: expected 13 columns, found"  # the times follow on a line of their own
    assert times in refusal(TITLES + line(2**20, 60.0) + cut + f"\n {HALF} {OTHER_HALF}\n")


def test_a_time_that_is_not_size_over_bandwidth_is_refused_by_its_row() -> None:
    edited = line(2**20, 60.0).replace("  60.00", "  30.00", 1)
    message = refusal(TITLES + line(2**22, 100.0) + edited)
    assert "x.txt:3: algbw is 17.48 GB/s, but 1,048,576 bytes in 30 us are 34.95 GB/s" in message
    assert "x.txt:2" not in message
    # An algbw of one digit fits a busbw that size and time do not fit.
    coarse = TITLES + line(1024, 100.0)
    assert len(read(coarse).rows) == 1
    assert "x.txt:2: busbw is 0.03" in refusal(coarse.replace("0.02", "0.03"))


@pytest.mark.parametrize("size", [16, 2**10, 2**22])
@pytest.mark.parametrize("title", ["   time", "cputime"])
def test_a_size_that_is_not_that_of_its_elements_is_refused_by_its_row(
    size: int, title: str
) -> None:
    # No digit of the bandwidths of a small size, and no time of `-C`, shows a wrong size.
    names = TITLES.replace("   time", title)
    edited = line(size, 60.0).replace(f"{size:12d}", f"{2 * size:12d}", 1)
    message = refusal(names + line(2**20, 60.0) + edited)
    assert f"x.txt:3: size is {2 * size:,} B, but count is {size // 4:,} of type float" in message
    assert "x.txt:2" not in message


def test_a_count_is_of_the_buffer_or_in_all_rows_of_one_ranks_part() -> None:
    def row(size: int, count: int) -> str:
        text = line(size, 60.0, 7 / 8, redop="none")
        return text.replace(f" {size // 4:12d} float", f" {count:12d} float")

    of_parts = row(2**20, 2**15) + row(2**21, 2**16)
    assert len(read(TITLES + of_parts, Pattern.ALLGATHER).rows) == 2
    mixed = TITLES + of_parts + row(2**20, 2**18)
    assert "x.txt:4: size is 1,048,576 B" in refusal(mixed, Pattern.ALLGATHER)
    unknown = TITLES + row(2**20, 2**10).replace("float", "e2m1")
    assert len(read(unknown, Pattern.ALLGATHER).rows) == 1


def test_the_fault_of_many_rows_is_named_by_the_first_ones() -> None:
    message = refusal(TITLES + line(2**20, 60.0) * 9, ranks=64)
    assert message.count("busbw") == 3
    assert "x.txt:5: and 6 rows more like these" in message


def test_rows_whose_check_failed_are_refused() -> None:
    log = TITLES + line(2**20, 60.0) + line(2**22, 90.0, wrong="1e+06")
    assert "x.txt:3: the check of this row failed: #wrong is 1e+06" in refusal(log)
    assert "#wrong is beyond its limit" in refusal(log.replace(" 1e+06", "0e+00*"))
    assert "#wrong is beyond its limit" in refusal(log.replace("1e+06", "  nan"))
    log = TITLES + line(2**20, 60.0) + "# Out of bounds values : 5 FAILED\n"
    assert "x.txt:3: the check of received data failed" in refusal(log)
    assert len(read(log.replace("5 FAILED", "0 OK")).rows) == 1


def test_processes_that_each_ran_alone_are_refused() -> None:
    both = START + device(0, name="a") + device(0, name="b") + TITLES + line(2**20, 60.0, 0.0) * 2
    assert "x.txt:4: rank 0 is listed again, after line 3" in refusal(both)
    assert "a second time" in refusal(TITLES * 2 + line(2**20, 60.0) * 2)
    assert "one rank ran alone" in refusal(TITLES + line(2**20, 60.0, 0.0))
    assert "one rank" in refusal(START + device(0) + TITLES + line(2**20, 60.0, 0.0), ranks=None)
    split = START + device(0) + device(1, group=1) + TITLES + line(2**20, 60.0, 0.0)
    assert "2 groups of ranks ran at the same time" in refusal(split, ranks=2)


def test_of_several_tests_only_the_one_that_is_meant_is_read() -> None:
    named = "# Collective test starting: {}_perf\n" + TITLES
    first = named.format("all_reduce") + line(2**20, 60.0)
    second = named.format("alltoall") + line(2**20, 90.0, 7 / 8, redop="none")
    both = first + second
    assert read(both).rows[0].timing.time_us == 60.0
    assert read(both, Pattern.ALLTOALL).rows[0].timing.time_us == 90.0
    assert read(both).notes == ("one of 2 tests in x.txt: allreduce from line 1",)
    assert "x.txt:4: test 2 of 2 in it: alltoall" in refusal(both, None)
    assert "test 1 of 2" in refusal(first + first)
    assert "test 1 of 2" in refusal((TITLES + line(2**20, 60.0)) * 2)


@pytest.mark.parametrize("program", ["sendrecv", "scatter", "reduce", "hypercube"])
def test_a_collective_that_is_not_simulated_is_named(program: str) -> None:
    log = f"# Collective test starting: {program}_perf\n{TITLES}{line(2**20, 60.0, 1.0)}"
    assert f"a test of {program}, which is not simulated" in refusal(log, None)


def test_an_alltoallv_says_that_its_parts_are_not_known() -> None:
    log = TITLES + line(2**20, 60.0, 7 / 8, redop="none")
    assert "draws its own" in read(log, Pattern.ALLTOALLV).notes[0]


@given(
    st.sampled_from([Pattern.ALLREDUCE, Pattern.ALLGATHER]),
    st.integers(2, 64),
    st.integers(2, 64),
    st.floats(100, 1e6),
)
def test_what_was_measured_with_some_ranks_is_never_compared_with_others(
    pattern: Pattern, ranks: int, asked: int, time_us: float
) -> None:
    factor = (ranks - 1) / ranks * (2 if pattern is ALLREDUCE else 1)
    size = 4 * int(time_us * 1000 * 25)
    redop = "sum" if pattern is ALLREDUCE else "none"
    log = TITLES + line(size, round(time_us, 2), factor, redop=redop)
    if asked == ranks:
        assert read(log, pattern, ranks).ranks == ranks
    else:
        assert "x.txt:2: " in refusal(log, pattern, asked)


# --- formats -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prefix",
    [
        *("[1,0]<stdout>:", "[1,0]<stdout>: ", "[prterun-gpu-1@1,0]<stdout>: ", "0: ", " 3: "),
        *("[gpu-1:4711]<stdout>: ", "Sat Mar  1 10:20:30 2026[1,0]<stdout>:", "[0] ", "gpu-1: "),
        *("[pod/launcher-x/nccl] ", "[pod/a/b] 2026-03-01T10:20:30.1Z ", "launcher-1  | "),
        *("2026-03-01T10:20:30.123456789Z ", "2026-03-01T10:20:30.1+01:00 stdout F ", "| "),
        *("Mar 01 10:20:30 host nccl[123]: ", "2026-03-01 10:20:30,123 - INFO - ", "12 "),
        *("[2026-03-01 10:20:30] ", "\x1b[36mlauncher nccl\x1b[0m ", "[default0]:", "\x1b[32m"),
    ],
)
def test_whatever_stands_before_a_line_is_passed_over(prefix: str) -> None:
    log = devices(8) + TITLES + line(2**20, 60.0) + line(2**22, 90.0, wrong="N/A")
    prefixed = "".join(f"{prefix}{text}\x1b[0m\r\n" for text in log.splitlines())
    assert [row.size_bytes for row in read(prefixed, ranks=None).rows] == [2**20, 2**22]
    assert read(prefixed).ranks == 8


def test_a_cpu_time_is_not_taken_for_the_time_of_the_collective() -> None:
    log = TITLES.replace("   time", "cputime") + line(2**20, 60.0).replace("  60.00", "   5.00")
    test = read(log + line(1024, 100.0).replace(" 100.00", "   5.00"))
    assert test.rows[0].timing.time_us == pytest.approx(60, abs=0.02)
    assert [row.size_bytes for row in test.rows] == [2**20]
    assert test.notes == (
        "cputime is the CPU's; the collective's time is size / algbw",
        "1 row with an algbw of too few digits left out",
    )
    assert "busbw is 30.58" in refusal(log, ranks=16)


def test_time_stamps_stand_first_or_last() -> None:
    stamp = "2026-03-01 10:20:30"
    last = TITLES.replace("\n", " timestamp\n") + line(2**20, 60.0).replace("\n", f" {stamp}\n")
    first = TITLES.replace("#  ", "# timestamp  ") + f"  {stamp} {line(2**20, 60.0)}"
    for log in (last, first):
        assert read(log).rows[0].timing.time_us == 60.0


def test_statistics_of_iterations_are_passed_over() -> None:
    titles = NAMES + (HALF_NAMES + " i_min i_max i_p99 i_cv%") * 2 + "\n"
    half = "60.00 17.48 30.58 0 59.0 61.0 61.0 0.5"
    assert read(f"{titles} 1048576 262144 float sum -1 {half} {half}\n").rows[0].in_place


def test_a_single_half_is_the_one_that_its_columns_or_its_gap_say() -> None:
    half = "   60.00   17.48   30.58      0\n"
    leading = "1048576 262144 float sum -1"
    in_place = "#            in-place\n" + NAMES + HALF_NAMES + "\n" + leading + half
    for log in (in_place, TITLES + leading + " " * 32 + half):
        assert read(log).rows[0].out_of_place is None
    assert read(TITLES + leading + half).rows[0].in_place is None


def test_the_first_versions_print_milliseconds() -> None:
    log = (
        "#      bytes             N    type      op     time  algbw  busbw      res\n"
        "#     1048576        262144   float     sum    0.060  17.48  30.58    0e+00\n"
    )
    assert read(log).rows[0].timing.time_us == pytest.approx(60)


def test_the_first_versions_leave_a_ranks_own_part_out_of_algbw() -> None:
    log = TITLES + "1048576 32768 float none -1 100.0 9.18 9.18 0 100.0 9.18 9.18 0\n"
    assert read(log, Pattern.ALLGATHER).ranks == 8
    assert "x.txt:2: algbw is 9.18" in refusal(log, Pattern.ALLGATHER, 16)


RESULT = {
    "size": 2**20,
    "count": 2**18,
    "type": "float",
    "redop": "sum",
    "root": "    -1",
    "out_of_place": {"time": 60.1, "alg_bw": 17.447, "bus_bw": 30.533, "nwrong": 0},
    "in_place": None,
}
CONFIG = {"nthreads": 1, "ngpus": 4, "devices": [{"rank": 0, "group": 0}, {"rank": 4, "group": 0}]}


def document(**keys: object) -> str:
    args = ["/opt/build/all_reduce_perf", "-b", "8"]
    return json.dumps({"version": 2, "args": args, "config": CONFIG, "results": [RESULT], **keys})


def test_json_of_nccl_tests_is_read_and_checked() -> None:
    test = read(document(), None, None)
    assert (test.pattern, test.ranks) == (ALLREDUCE, 8)
    assert test.rows[0].timing.time_us == 60.1
    assert test.rows[0].root == -1
    assert "lists 8 ranks, not 16" in refusal(document(), ranks=16)
    failed = document(out_of_bounds={"count": 1, "okay": "false"})
    assert "x.txt: out_of_bounds: the check of received data failed" in refusal(failed)
    wrong = {**RESULT, "out_of_place": {**RESULT["out_of_place"], "nwrong": 7}}  # type: ignore[dict-item]
    assert "x.txt: results[0]: the check of this row failed" in refusal(document(results=[wrong]))
    cut = refusal(document()[:200])
    assert "x.txt:1: not JSON" in cut
    assert "results[0]: expected" in refusal(document(results=[{**RESULT, "size": "x"}]))
    cpu = {"cpu_time": 5.0, "alg_bw": 17.447, "bus_bw": 30.533}
    (row,) = read(document(results=[{**RESULT, "out_of_place": cpu}])).rows
    assert row.timing.time_us == pytest.approx(60.1, abs=0.01)


RECORD = (
    '{"name":"AllReduce", "nodes":2, "ranks":8, "ranksPerNode":4, "gpusPerRank":1, '
    '"size":1048576, "type":"float", "redop":"sum", "inPlace":0, "time":60.1, '
    '"algBw":17.447, "busBw":30.533, "wrong":"0"}'
)
CSV = """collective, ranks, rankspernode, gpusperrank, size, type, redop, inplace, time, algbw, \
busbw, #wrong
AllReduce, 2, 8, 4, 1, 1048576, float, sum, 0, 60.1, 17.447, 30.533, 0
AllReduce, 2, 8, 4, 1, 1048576, float, sum, 1, 60.2, 17.418, 30.482, 0
"""


def test_records_of_rccl_tests_are_read_and_checked() -> None:
    lines = RECORD + "\n" + RECORD.replace('"inPlace":0', '"inPlace":1') + "\n"
    as_list = "[" + lines.replace("}\n{", "},{") + "]"
    for text in (lines, as_list, CSV):
        test = read(text, None, None)
        assert (test.pattern, test.ranks, len(test.rows)) == (ALLREDUCE, 8, 1)
        assert test.rows[0].in_place
    other_size = CSV.replace("1048576, float, sum, 1, 60.2,", "1024, float, sum, 1, 0.05879,")
    assert [row.size_bytes for row in read(other_size, None, None).rows] == [2**20, 2**10]
    assert "not of an alltoall" in refusal(CSV, Pattern.ALLTOALL)
    assert "x.txt:2: it lists 8 ranks, not 4" in refusal(CSV, ranks=4)
    two = CSV + CSV.splitlines()[-1].replace("AllReduce", "AllGather") + "\n"
    assert "test 2 of 2 in it: allgather" in refusal(two, None)


def test_rccl_tests_records_what_a_rank_receives_of_a_reducescatter() -> None:
    record = RECORD.replace("AllReduce", "ReduceScatter").replace("30.533", "15.266")
    for size in (2**20, 2**17):
        text = record.replace("1048576", str(size))
        assert read(text, None, None).rows[0].size_bytes == 2**20


def test_a_log_file_of_docker_is_its_lines() -> None:
    log = devices(8) + TITLES + line(2**20, 60.0)
    records = (json.dumps({"log": text + "\n", "stream": "stdout"}) for text in log.splitlines())
    assert read("\n".join(records), ranks=None).ranks == 8


@given(st.text(), st.integers(0, 400))
def test_garbage_in_a_log_is_an_error_or_changes_nothing(garbage: str, place: int) -> None:
    log = devices(8) + TITLES + line(2**20, 60.0) + line(2**22, 90.0)
    for text in (log, document(), CSV, RECORD):
        at = place % len(text)
        try:
            test = read(text[:at] + garbage + text[at:], None)
        except InputError as error:
            assert "x.txt" in error.message
        else:
            assert {row.size_bytes for row in test.rows} <= {2**20, 2**22}


# --- reference ---------------------------------------------------------------------------------


def test_a_simulation_that_takes_half_the_time_has_twice_the_bandwidth() -> None:
    (row,) = compare(read(HEADER + BOTH), lambda size: 1119.8e3 / 2)
    assert row.ratio == pytest.approx(2)
    assert row.measured_busbw_gbs == 419.49
    assert row.simulated_busbw_gbs == pytest.approx(2 * 419.49, rel=1e-3)


def test_a_size_is_simulated_once_and_tiny_sizes_have_a_ratio_too() -> None:
    text = HEADER + BOTH + BOTH + "8 2 float sum -1 20.0 0.00 0.00 0 20.0 0.00 0.00 0\n"
    asked: list[int] = []

    def simulate(size: int) -> float:
        asked.append(size)
        return 10_000.0

    rows = compare(read(text), simulate)
    assert asked == [268435456, 8]
    assert [row.size_bytes for row in rows] == [268435456, 268435456, 8]
    assert rows[-1].ratio == pytest.approx(2)
    assert rows[-1].simulated_busbw_gbs == pytest.approx(8 / 10_000 * 1.75, rel=1e-3)


@given(
    st.floats(1, 1e6), st.floats(0.1, 1e4), st.lists(st.integers(0, 40), min_size=2, unique=True)
)
def test_a_fit_finds_the_latency_and_bandwidth_that_made_the_times(
    latency_ns: float, bandwidth_gbs: float, powers: list[int]
) -> None:
    sizes = [2.0**power for power in powers]
    times = [latency_ns + size / bandwidth_gbs for size in sizes]
    fitted = fit_alpha_beta(sizes, times)
    assert fitted.worst < 1e-6
    for size, time in zip(sizes, times, strict=True):
        assert fitted.time_ns(size) == pytest.approx(time, rel=1e-6)


def test_a_fit_of_a_run_on_8_gpus_is_within_a_percent_or_two_of_every_row() -> None:
    rows = read_nccl_tests(nccl_output(), pattern=ALLREDUCE, ranks=8).rows
    sizes = [row.size_bytes for row in rows]
    fitted = fit_alpha_beta(sizes, [row.timing.time_us * 1000 for row in rows])
    assert fitted.worst < 0.03
    assert 240 < fitted.bandwidth_gbs < 300
    assert all(a < b for a, b in pairwise(map(fitted.time_ns, sizes)))


def test_a_fit_never_has_a_latency_below_zero() -> None:
    fitted = fit_alpha_beta([1e6, 1e9], [1e3, 2e6])
    assert fitted.latency_ns == 0
    assert fitted.worst > 0


@pytest.mark.parametrize(
    ("sizes", "times", "message"),
    [
        ([8], [1.0], "two sizes"),
        ([8, 8], [1.0, 2.0], "two sizes"),
        ([8, 16], [1.0, 0.0], "above 0"),
        ([8, 2**20], [5.0, 1.0], "do not grow with size"),
    ],
)
def test_times_that_fix_no_bandwidth_are_refused(
    sizes: list[int], times: list[float], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fit_alpha_beta(sizes, times)
