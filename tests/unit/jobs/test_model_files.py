"""Models and token matrices from files: read as they are, and refused where they stand."""

import json
from pathlib import Path
from typing import Any

import pytest

from rocelab.base.errors import SpecError
from rocelab.jobs.job_spec import SimulatedJob, load_jobs
from rocelab.jobs.models import MODELS
from rocelab.jobs.training_spec import TrainingSpec

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "max_position_embeddings": 8192,
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
}
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 4096,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_group": 8,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "topk_group": 4,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
QWEN: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "max_position_embeddings": 4096,
    "mlp_only_layers": [],
    "moe_intermediate_size": 1536,
    "num_attention_heads": 64,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 94,
    "num_key_value_heads": 4,
    "sliding_window": None,
    "use_sliding_window": False,
    "vocab_size": 151936,
}


def training(folder: Path, model: str, routing: str = "") -> TrainingSpec:
    path = folder / "jobs.yaml"
    path.write_text(
        "jobs:\n"
        "  - name: a\n"
        "    training:\n"
        f"      model: {model}\n"
        "      data: 8\n"
        "      gpu_flops: 400T\n" + routing
    )
    (job,) = load_jobs(path)
    assert isinstance(job.workload, TrainingSpec)
    assert SimulatedJob.model_validate_json(job.model_dump_json()) == job
    return job.workload


def of_config(folder: Path, config: dict[str, Any], model: str = "{config: config.json}") -> Any:
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return training(folder, model).model


@pytest.mark.parametrize(
    ("config", "name"),
    [(LLAMA, "llama3-70b"), (DEEPSEEK, "deepseek-v3"), (QWEN, "qwen3-235b")],
    ids=["llama", "deepseek", "qwen"],
)
def test_a_config_is_the_model_that_ships(
    tmp_path: Path, config: dict[str, Any], name: str
) -> None:
    assert of_config(tmp_path, config) == MODELS[name]


def test_keys_beside_the_config_change_it(tmp_path: Path) -> None:
    model = of_config(tmp_path, LLAMA, "{config: config.json, sequence: 131072}")
    assert model == MODELS["llama3-70b"].model_copy(update={"sequence": 131072})
    with pytest.raises(SpecError, match=r"jobs\.yaml:4: jobs\[0\]\.training\.model\.layers"):
        of_config(tmp_path, LLAMA, "{config: config.json, layers: -1}")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_type": "mamba"}, "config.json:2: model_type: expected llama, mistral"),
        ({"model_type": None}, "config.json:2: model_type: expected llama"),
        ({"hidden_size": None}, "hidden_size: is missing"),
        ({"hidden_size": "8192"}, "config.json:3: jobs[0].training.model.hidden: expected a whole"),
        ({"hidden_size": 8193.5}, "config.json:3: jobs[0].training.model.hidden"),
        ({"num_hidden_layers": 10**9}, "training.model.layers: expected a whole number from 1"),
        ({"num_attention_heads": 60}, "does not divide into 60 heads"),
        ({"model_type": "mistral", "sliding_window": 4096}, "in a sliding window"),
        ({"use_sliding_window": True}, "in a sliding window"),
        ({"mlp_only_layers": [0]}, "experts in some layers only"),
    ],
    ids=lambda value: str(value)[:32],
)
def test_a_config_that_is_not_modelled_is_refused_with_its_line(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    with pytest.raises(SpecError) as refused:
        of_config(tmp_path, {**LLAMA, **change})
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "text", ["", "[1]", "{", "\0", '{"a": ' * 100, "x" * 2**21], ids=lambda text: text[:6]
)
def test_a_file_that_is_no_config_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(SpecError, match=r"config\.json"):
        training(tmp_path, "{config: config.json}")


def test_a_config_elsewhere_is_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "secret").write_text("password: hunter2\n")
    with pytest.raises(SpecError) as refused:
        training(tmp_path / "jobs", "{config: ../secret}")
    assert "hunter2" not in str(refused.value)
    assert "password" not in str(refused.value)


MIXTRAL = "mixtral-8x7b"
ROUTING = "      routing: {tokens: tokens.csv}\n      expert: 4\n"


def test_a_matrix_of_tokens_is_read_from_beside_the_job(tmp_path: Path) -> None:
    (tmp_path / "tokens.csv").write_text("1,1,1,1,1,1,1,2\n")
    spec = training(tmp_path, MIXTRAL, ROUTING)
    assert spec.routing.tokens == ((1.0,) * 7 + (2.0,),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1,2\n", "1 rows of 2 tokens are not 1 or 4 rows of 8"),
        ("1,1,1,1,1,1,1,1\n" * 3, "3 rows of 8 tokens"),
        ("9,1,1,1,1,1,1,1\n", "at most 50% can go to one"),
        ("expert,1\n", "tokens.csv:1: expected a number of tokens, got 'expert'"),
        ("1,-2\n", "expected a number of tokens"),
        ("1,nan\n", "expected a number of tokens"),
        ("1,1e999\n", "expected a number of tokens"),
        ("\n\n", "has no numbers"),
        ("1,1\n1\n", "rows of one length"),
    ],
    ids=lambda text: text[:12],
)
def test_a_matrix_that_does_not_fit_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "tokens.csv").write_text(text)
    with pytest.raises(SpecError) as refused:
        training(tmp_path, MIXTRAL, ROUTING)
    assert says in str(refused.value)


def test_a_matrix_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        training(tmp_path, MIXTRAL, ROUTING)
