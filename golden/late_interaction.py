"""Models that give a vector of each token, as PyLate saves them, and LFM2 in both directions, for `embedding_models.py`."""

import json
import string

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken
from transformers.models.lfm2 import modeling_lfm2

MARKS = {"query_prefix": "[Q] ", "document_prefix": "[D] "}


def both_ways():
    """Makes LFM2 what its makers' bidirectional class is: every position sees all that are seen, and the middle of a convolution is
    the position itself. What is not seen still takes part in convolutions."""

    def mask(attention_mask=None, **_):
        if attention_mask is None or bool(attention_mask.all()):
            return None
        return torch.where(attention_mask.bool(), 0.0, float("-inf"))[:, None, None, :]

    def conv(x, weight, bias=None, **_):
        return torch.nn.functional.conv1d(x, weight[:, None], bias, padding=weight.shape[1] // 2, groups=x.shape[1])

    modeling_lfm2.create_causal_mask = mask
    modeling_lfm2.create_recurrent_attention_mask = lambda **_: None
    modeling_lfm2.causal_conv1d_fn = conv


def write(case, folder, tokenizer, hidden):
    """The files around the transformer in `folder`; returns the settings."""
    tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in MARKS.values()])
    tokenizer.save_pretrained(folder)
    config = MARKS | dict(
        model_type="ColBERT",
        prompts={},
        default_prompt_name=None,
        similarity_fn_name="MaxSim",
        query_length=16,
        document_length=64,
        attend_to_expansion_tokens=False,
        skiplist_words=list(string.punctuation),
        do_query_expansion=True,
    )
    config |= case["late"]
    modules = [("", "sentence_transformers.models.Transformer"), ("1_Dense", "pylate.models.Dense.Dense")]
    dense = dict(in_features=hidden, out_features=24, bias=False, activation_function="torch.nn.modules.linear.Identity", use_residual=False)
    files = {
        "modules.json": [dict(idx=i, name=str(i), path=path, type=kind) for i, (path, kind) in enumerate(modules)],
        "1_Dense/config.json": dense,
        "sentence_bert_config.json": dict(max_seq_length=63, do_lower_case=False),
        "config_sentence_transformers.json": config,
    }
    (folder / "1_Dense").mkdir()
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value, indent=2) + "\n")
    save_file({"linear.weight": torch.randn(24, hidden) * 0.3}, folder / "1_Dense/model.safetensors")
    return config


def expect(folder, config, tokenizer, texts, whole):
    """What sentence-transformers gives of queries and documents, with the tokens that PyLate makes of them."""
    fill = next(t for t in (tokenizer.mask_token_id, tokenizer.eos_token_id) if t is not None)
    skipped = [tokenizer.get_vocab().get(word) for word in config["skiplist_words"]]
    rows, matrices = [], []
    for role in ["query", "document"]:
        for text in texts:
            ids = tokenizer(text)["input_ids"]
            ids.insert(1, tokenizer.get_vocab()[config[f"{role}_prefix"]])
            length = config[f"{role}_length"]
            if len(ids) > length:
                continue
            seen = [1] * len(ids)
            kept = [i for i, token in enumerate(ids) if role == "query" or token not in skipped]
            if role == "query" and config["do_query_expansion"]:
                more = length - len(ids)
                kept += range(len(ids), length)
                ids, seen = ids + [fill] * more, seen + [int(config["attend_to_expansion_tokens"])] * more
            encode = whole.encode_query if role == "query" else whole.encode_document
            matrix = torch.as_tensor(encode([text])[0])
            assert matrix.shape == (len(kept), 24), (text, role, matrix.shape, len(kept))
            rows.append(dict(text=text, role=role, ids=ids, seen=seen, kept=kept))
            matrices.append(matrix)
    assert {row["role"] for row in rows} == {"query", "document"}
    (folder / "expected.json").write_text(json.dumps(dict(matrices=rows)) + "\n")
    save_file({"vectors": torch.cat(matrices).contiguous()}, folder / "expected.safetensors")
