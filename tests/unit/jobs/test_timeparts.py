"""Where an iteration's time goes: the longest chain, whose parts add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.jobs.timeparts import BUBBLE, COMPUTE, time_parts
from rocelab.jobs.workload import Dimension, Step


def test_only_what_the_longest_chain_waits_for_is_exposed() -> None:
    steps = (
        Step("gather", dimension=Dimension.DATA),
        Step("forward", (), 5.0, inside=((Dimension.TENSOR, 1.0),)),
        Step("exchange", (1,), dimension=Dimension.EXPERT),
        Step("optimizer", (0, 2)),
    )
    # The gather ends before the exchange: hidden.
    assert time_parts(steps, (6.0, 5.0, 7.5, 7.5), 0) == {
        COMPUTE: 4.0,
        Dimension.TENSOR: 1.0,
        Dimension.EXPERT: 2.5,
    }
    # It ends last: it alone is what takes time.
    assert time_parts(steps, (9.0, 5.0, 7.5, 9.0), 0) == {Dimension.DATA: 9.0}


def test_computation_beyond_a_gpu_s_own_is_the_pipeline_s_bubble() -> None:
    steps = (Step("a", (), 3.0), Step("b", (0,), 4.0))
    assert time_parts(steps, (3.0, 7.0), 0, computed_s=5.0) == {COMPUTE: 5.0, BUBBLE: 2.0}


def test_an_iteration_begins_where_the_one_before_ends() -> None:
    steps = (Step("a", (), 3.0), Step("b", (0,), 4.0, iteration=1))
    assert time_parts(steps, (13.0, 17.0), 0, begin_s=10.0) == {COMPUTE: 3.0}
    assert time_parts(steps, (13.0, 17.0), 1, begin_s=10.0) == {COMPUTE: 4.0}
    assert time_parts(steps, (13.0, 17.0), 2) == {}


@given(
    st.lists(
        st.tuples(
            st.floats(0, 10),
            st.floats(0, 10),
            st.sampled_from([None, *Dimension]),
            st.integers(0, 9),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_parts_add_up_to_the_iteration(
    drawn: list[tuple[float, float, Dimension | None, int]],
) -> None:
    steps, ends = [], list[float]()
    for number, (compute_s, sent_s, dimension, back) in enumerate(drawn):
        after = tuple({max(0, number - back - 1), number - 1}) if number else ()
        ready = max((ends[earlier] for earlier in after), default=0.0)
        steps.append(Step(str(number), after, compute_s, dimension=dimension))
        ends.append(ready + compute_s + (sent_s if dimension else 0.0))
    assert sum(time_parts(steps, ends, 0).values()) == pytest.approx(max(ends))
