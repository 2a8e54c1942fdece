"""The files that the model of a job names: a Hugging Face config.json, and a matrix of tokens.

What they hold stands for the keys that name them when a file of jobs is loaded, with the lines of
those files, so that a job, a result or a record then needs no file beside itself. Paths are
relative to the folder of the file of jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from rocelab.base.errors import Problem, SpecError
from rocelab.base.files import NotTextError, read_input, text_of
from rocelab.base.wording import KeyPath, counted, described, did_you_mean, listed, printable, shown
from rocelab.jobs.experts import MOST_TOKENS
from rocelab.labfile.reference import named_by
from rocelab.labfile.references import EACH, Content, FileReference, Naming
from rocelab.labfile.source import Data, raise_problems, read_source

MOST_BYTES = 2**24

TYPES = (
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "deepseek_v2",
    "deepseek_v3",
    "kimi_k2",
)
"""Values of `model_type` whose layers are those of `rocelab.jobs.model_shape`."""
_KEYS: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers",),
    "hidden": ("hidden_size",),
    "heads": ("num_attention_heads",),
    "kv_heads": ("num_key_value_heads",),
    "head_width": ("head_dim",),
    "ffn": ("intermediate_size",),
    "vocab": ("vocab_size",),
    "sequence": ("max_position_embeddings",),
    "tied": ("tie_word_embeddings",),
    "experts": ("n_routed_experts", "num_experts", "num_local_experts"),
    "top_k": ("num_experts_per_tok",),
    "expert_ffn": ("moe_intermediate_size",),
    "shared_experts": ("n_shared_experts",),
    "dense_layers": ("first_k_dense_replace",),
    "expert_groups": ("n_group",),
    "top_groups": ("topk_group",),
    "predicted_ahead": ("num_nextn_predict_layers",),
}
"""Keys of a shape, and those of a config."""
_OF_EXPERTS = (
    "experts",
    "top_k",
    "expert_ffn",
    "shared_experts",
    "dense_layers",
    "expert_groups",
    "top_groups",
)
_REQUIRED = ("layers", "hidden", "heads", "ffn", "vocab", "sequence")
_LATENT: Mapping[str, str] = {
    "kv_rank": "kv_lora_rank",
    "q_rank": "q_lora_rank",
    "rope": "qk_rope_head_dim",
    "nope": "qk_nope_head_dim",
    "value": "v_head_dim",
}
_UNIFORM: Mapping[str, tuple[Callable[[Data], bool], str]] = {
    "decoder_sparse_step": (lambda value: value == 1, "experts in some layers only"),
    "moe_layer_freq": (lambda value: value == 1, "experts in some layers only"),
    "mlp_only_layers": (lambda value: value == [], "experts in some layers only"),
    "shared_expert_intermediate_size": (
        lambda value: value == 0,
        "shared experts of their own width",
    ),
    "use_sliding_window": (lambda value: value is False, "attention in a sliding window"),
}
"""Keys of what a shape cannot say, and the values with which they say nothing."""


def _config(naming: Naming) -> Content | None:
    if not isinstance(naming.value, str):
        return None
    path = naming.folder / naming.value
    with named_by(naming.path, path):
        shape, lines = read_config(path)
    return Content(shape, printable(str(path)), lines)


def _tokens(naming: Naming) -> Content | None:
    if not isinstance(naming.value, str):
        return None
    path = naming.folder / naming.value
    with named_by(naming.path, path):
        tokens = read_tokens(path)
    return Content(tokens, printable(str(path)), {(): 1})


MODEL_FILES = tuple(
    reference
    for block in ("training", "inference", "serving")
    for reference in (
        FileReference(("jobs", EACH, block, "model", "config"), _config, ()),
        *(
            FileReference(("jobs", EACH, block, routing, "tokens"), _tokens)
            for routing in ("routing", "decode_routing")
        ),
    )
)
"""A model's config.json, whose keys those of the block replace, and matrices of tokens."""


def read_config(path: Path) -> tuple[dict[str, Data], dict[KeyPath, int]]:
    """The shape that a config.json describes, and the line of each of its keys. Raises SpecError
    for a model of another kind, or with layers that differ."""
    source = read_source(path)
    config = {key: value for key, value in source.data.items() if value is not None}
    problems: list[Problem] = []

    def refuse(key: str, message: str, hint: str) -> None:
        problems.append(Problem(source.file, source.line((key,)), key, message, hint))

    kind = config.get("model_type")
    if kind not in TYPES:
        got = shown(kind) if isinstance(kind, str) else described(kind)
        near = did_you_mean(kind, TYPES) if isinstance(kind, str) else None
        refuse(
            "model_type",
            f"expected {listed(TYPES)}, got {got}",
            near or "write the model's layers, hidden, heads and so on as keys of model",
        )
        raise_problems(problems)
    for key, (says_nothing, what) in _UNIFORM.items():
        if key in config and not says_nothing(config[key]):
            refuse(key, f"{what}: that is not modelled", "write a shape that is near it")
    if kind == "mistral" and "sliding_window" in config:
        what = "attention in a sliding window: that is not modelled"
        refuse("sliding_window", what, "set it to null where sequences are shorter")
    shape: dict[str, Data] = {}
    lines: dict[KeyPath, int] = {(): 1}
    for key, theirs in _KEYS.items():
        name = next((name for name in theirs if name in config), None)
        if name is not None:
            shape[key] = config[name]
            lines[(key,)] = source.line((name,)) or 1
        elif key in _REQUIRED:
            refuse(theirs[0], "is missing", "is it the config.json of a language model?")
    if "kv_lora_rank" in config:
        shape["latent"] = {key: config[name] for key, name in _LATENT.items() if name in config}
        lines[("latent",)] = source.line(("kv_lora_rank",)) or 1
        for key in ("kv_heads", "head_width"):
            shape.pop(key, None)
    if shape.get("experts", 1) in (0, 1):
        for key in _OF_EXPERTS:
            shape.pop(key, None)
    elif "top_k" not in shape:
        refuse("num_experts_per_tok", "is missing", "it is how many experts a token goes to")
    if problems:
        raise_problems(problems)
    return shape, {key: line for key, line in lines.items() if not key or key[0] in shape}


def read_tokens(path: Path) -> list[Data]:
    """A matrix of tokens: a line of numbers with commas for all senders, or one for each. Raises
    SpecError."""
    file = printable(str(path))
    try:
        text = text_of(read_input(path, MOST_BYTES))
    except NotTextError as error:
        raise SpecError([Problem(file, error.line, "", str(error), error.hint)]) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecError([Problem(file, None, "", f"cannot be read: {reason}", None)]) from None
    rows: list[Data] = []
    count = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        words = line.split(",")
        count += len(words)
        if count > MOST_TOKENS:
            message = f"more than {counted(MOST_TOKENS, 'number')}"
            raise SpecError([Problem(file, number, "", message, "one row stands for all senders")])
        rows.append([_number(word, file, number) for word in words])
    if not rows:
        hint = "write a number for each expert, with commas between them"
        raise SpecError([Problem(file, None, "", "has no numbers", hint)])
    return rows


def _number(word: str, file: str, line: int) -> float:
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not (0 <= number <= 1e15 and word.isascii()):
        message = f"expected a number of tokens, got {shown(word.strip())}"
        raise SpecError(
            [Problem(file, line, "", message, "numbers from 0 to 1e15, without a header")]
        )
    return number
