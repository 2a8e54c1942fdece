"""The choices of switch ASICs compared with the kernel's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.choices import ChoiceModel, Cut, crc_model, kernel_model
from bench.hashing import second_tier
from rocelab.labfile.model import HashPolicy
from rocelab.routes.asic import Crc, crc_hashes, crc_of
from rocelab.routes.bulk import multipath_hashes, select_all
from rocelab.routes.flows import columns_v4
from rocelab.routes.multipath import Flow5
from tests.helpers.flow_columns import as_columns
from tests.unit.routes.test_multipath import flows_of, seeds, weight_lists

MODELS = [
    kernel_model(HashPolicy.L4),
    kernel_model(HashPolicy.L4, cut=Cut.MODULO),
    *(crc_model(crc, cut) for crc in Crc for cut in Cut),
]


@pytest.mark.parametrize(
    ("crc", "start", "check"),
    [
        (Crc.CRC_16_IBM_3740, 0xFFFF, 0x29B1),
        (Crc.CRC_16_ARC, 0, 0xBB3D),
        (Crc.CRC_32_ISO_HDLC, 0xFFFF_FFFF, 0xCBF43926),
        (Crc.CRC_32_ISCSI, 0xFFFF_FFFF, 0xE3069283),
    ],
)
def test_a_crc_has_the_check_value_of_the_catalogue(crc: Crc, start: int, check: int) -> None:
    message = np.frombuffer(b"123456789", np.uint8)[None]
    assert crc_of(message, start, crc).tolist() == [check]


@pytest.mark.parametrize("crc", Crc)
@given(st.lists(flows_of(4), min_size=2, max_size=20), seeds)
def test_two_seeds_of_a_crc_differ_by_one_xor_for_all_flows(
    crc: Crc, flows: list[Flow5], seed: int
) -> None:
    columns = as_columns(flows)
    assert len(set(crc_hashes(columns, seed, crc=crc) ^ crc_hashes(columns, 1, crc=crc))) == 1


@given(st.lists(flows_of(4), min_size=1, max_size=20), seeds, weight_lists)
def test_the_kernels_model_is_the_kernels_choice(
    flows: list[Flow5], seed: int, weights: list[int]
) -> None:
    columns = as_columns(flows)
    chosen = kernel_model(HashPolicy.L4).choose(columns, seed, weights)
    assert (chosen == select_all(multipath_hashes(columns, seed, HashPolicy.L4), weights)).all()


@pytest.mark.parametrize("model", MODELS)
def test_shares_follow_weights(model: ChoiceModel) -> None:
    generator = np.random.default_rng(1)
    flows = columns_v4(
        generator.integers(0, 2**32, 40_000), 7, generator.integers(0, 2**16, 40_000), 4791
    )
    shares = np.bincount(model.choose(flows, 9, [1, 2, 5]), minlength=3) / len(flows)
    assert shares == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=0.01)


@pytest.mark.parametrize("model", MODELS)
def test_a_group_without_members_has_no_choice(model: ChoiceModel) -> None:
    with pytest.raises(ValueError, match="at least one"):
        model.choose(columns_v4([1], 2, 3, 4), 5, [])


@pytest.mark.parametrize(
    ("cut", "uplinks", "used", "mmr"),
    [
        (Cut.THRESHOLD, 18, 2, 13),
        (Cut.THRESHOLD, 15, 2, 11.5),
        (Cut.MODULO, 18, 9, 2.1),
        (Cut.MODULO, 15, 15, 1.08),
    ],
)
def test_equal_hashes_polarize_by_threshold_and_less_by_modulo(
    cut: Cut, uplinks: int, used: int, mmr: float
) -> None:
    model = kernel_model(HashPolicy.L4, cut=cut)
    tier = second_tier((model, model), (7, 7), (16, uplinks))
    assert round(tier.used) == used
    assert tier.mmr == pytest.approx(mmr, rel=0.08)


def test_different_seeds_undo_polarization_in_linux_but_not_of_crcs() -> None:
    kernel, crc = kernel_model(HashPolicy.L4), crc_model(Crc.CRC_32_ISCSI)
    linux = second_tier((kernel, kernel), (7, 8), (16, 16))
    asic = second_tier((crc, crc), (7, 8), (16, 16))
    assert (linux.used, asic.used) == (16, 1)
    assert linux.mmr < 1.2
    assert asic.mmr == 16


def test_a_crc_of_its_own_at_each_tier_undoes_polarization() -> None:
    crcs = crc_model(Crc.CRC_32_ISCSI), crc_model(Crc.CRC_32_ISO_HDLC)
    tier = second_tier(crcs, (7, 7), (16, 16))
    assert tier.used == 16
    assert tier.mmr < 1.2
