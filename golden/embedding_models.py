"""Write the tiny golden models that make vectors and scores of texts: random-weight folders of sentence-transformers, and what
sentence-transformers computes from them.

For every case in CASES this writes `embedding/<case>/`: the folder as sentence-transformers saves it (without its README), and two
files of expected results:

  expected.json          texts with the name of their prompt, or pairs of query and document; their token ids (and types); for scores
                         the scores; for matrices which tokens are seen, and which vectors are kept
  expected.safetensors   `vectors`, F32 [texts, dimensions]; `cut` for models whose vectors may be cut

The expected results are computed from the folder as written, with `SentenceTransformer.encode` and `CrossEncoder.predict`, one text
at a time, in F32 on one thread with eager attention.

Run: python golden/embedding_models.py [case ...]
"""

import json
import shutil
import sys
from pathlib import Path

import late_interaction
import nomic
import torch
from safetensors.torch import save_file
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer import modules as models
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers import models as token_models
from transformers.models.embedding_gemma2.processing_embedding_gemma2 import EmbeddingGemma2Processor
from transformers.models.embedding_gemma2.video_processing_embedding_gemma2 import EmbeddingGemma2VideoProcessor
from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor
from transformers.models.gemma4.image_processing_gemma4 import Gemma4ImageProcessor
from transformers.models.lfm2 import modeling_lfm2
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification, CLIPTextModelWithProjection, PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parent
OUT = ROOT / "embedding"

WORDS = "the of and to in a is that for it as was with be by on not he i this are or his from at which but have an had they you".split()
TEXTS = [
    "the and",
    "To be or not to be, that is the question",
    "a",
    "in this which they had from you with his",
    "Hello, World! 2 + 2 = 4",
]
PAIRS = [
    ("what is this", "this is that"),
    ("what is this", "he had it from you, and it was not his"),
    ("a", "the"),
]


def word_piece(typed=True) -> PreTrainedTokenizerFast:
    """A tokenizer of BERT's kind: pieces of lower-case words."""
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)] + list("0123456789,.!?+=")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *(l for l in letters if l not in WORDS)]
    pieces += ["##" + l for l in letters]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    t = Tokenizer(token_models.WordPiece(vocab, unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])],
    )
    names = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    inputs = ["input_ids", *(["token_type_ids"] if typed else []), "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=t, model_max_length=64, model_input_names=inputs, **names)


def unigram(single="<s> $A </s>", longest=64, **more) -> PreTrainedTokenizerFast:
    """A tokenizer of XLM-RoBERTa's kind: pieces of a unigram model."""
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)] + list("HTWo0123456789,.!?+=")
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -4.0)]
    pieces += [("\u2581" + w, -3.0 - 0.1 * i) for i, w in enumerate(WORDS)]
    known = {p for p, _ in pieces}
    pieces += [(l, -8.0 - 0.01 * i) for i, l in enumerate(dict.fromkeys(letters)) if l not in known]
    pieces += [("<mask>", 0.0)]
    t = Tokenizer(token_models.Unigram(pieces, unk_id=3, byte_fallback=False))
    t.normalizer = normalizers.NFKC()
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")])
    t.post_processor = processors.TemplateProcessing(
        single=single, pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = dict(bos_token="<s>", pad_token="<pad>", eos_token="</s>", cls_token="<s>", sep_token="</s>", unk_token="<unk>")
    return PreTrainedTokenizerFast(tokenizer_object=t, model_max_length=longest, mask_token="<mask>", **names, **more)


BERT = dict(
    model_type="bert",
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=56,
    max_position_embeddings=64,
    type_vocab_size=2,
    initializer_range=0.25,
)
XLM_ROBERTA = dict(
    model_type="xlm-roberta",
    hidden_size=48,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=64,
    max_position_embeddings=66,
    type_vocab_size=1,
    layer_norm_eps=1e-5,
    pad_token_id=1,
    bos_token_id=0,
    eos_token_id=2,
    initializer_range=0.25,
)


QWEN3 = dict(
    model_type="qwen3",
    hidden_size=48,
    intermediate_size=72,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=1024,
    rms_norm_eps=1e-6,
    rope_theta=1000000.0,
    tie_word_embeddings=True,
    use_sliding_window=False,
    initializer_range=0.25,
)
GEMMA3 = dict(
    model_type="gemma3_text",
    hidden_size=48,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=3,
    num_key_value_heads=1,
    head_dim=32,
    max_position_embeddings=64,
    query_pre_attn_scalar=32,
    sliding_window=8,
    layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    use_bidirectional_attention=True,
    attn_logit_softcapping=None,
    final_logit_softcapping=None,
    bos_token_id=0,
    eos_token_id=2,
    pad_token_id=1,
    initializer_range=0.25,
)
# Kinds of layers with heads, windows and rope bases that no two have alike, and vectors of another width than the states.
EMBEDDING_GEMMA2 = dict(
    hidden_size=32,
    intermediate_size=56,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    global_head_dim=24,
    num_global_key_value_heads=1,
    hidden_size_per_layer_input=20,
    embedding_dim=40,
    max_position_embeddings=64,
    sliding_window=6,
    sliding_window_pattern=2,
    rope_parameters=dict(
        sliding_attention=dict(rope_type="default", rope_theta=1000.0), full_attention=dict(rope_type="default", rope_theta=50000.0)
    ),
    bos_token_id=0,
    eos_token_id=2,
    pad_token_id=1,
    initializer_range=0.25,
)
EMBEDDING_GEMMA2_SEES = dict(
    model_type="gemma4_vision",
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=1,
    num_key_value_heads=1,
    head_dim=16,
    patch_size=4,
    pooling_kernel_size=2,
    position_embedding_size=8,
)
EMBEDDING_GEMMA2_HEARS = dict(
    model_type="gemma4_audio",
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=1,
    subsampling_conv_channels=[4, 2],
    conv_kernel_size=3,
    output_proj_dims=16,
)
EMBEDDING_GEMMA2_TOKENS = dict(
    boi_token="<|image>", image_token="<|image|>", eoi_token="<image|>", boa_token="<|audio>", audio_token="<|audio|>", eoa_token="<audio|>"
)


MODERNBERT = dict(
    model_type="modernbert",
    hidden_size=48,
    intermediate_size=40,
    num_hidden_layers=4,
    num_attention_heads=3,
    max_position_embeddings=64,
    local_attention=8,
    pad_token_id=0,
    bos_token_id=2,
    eos_token_id=3,
    cls_token_id=2,
    sep_token_id=3,
    initializer_range=0.25,
)


NOMIC = dict(
    model_type="nomic_bert",
    hidden_size=96,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=56,
    max_position_embeddings=64,
    type_vocab_size=2,
    initializer_range=0.25,
)


LFM2 = dict(
    model_type="lfm2",
    hidden_size=48,
    intermediate_size=96,
    block_auto_adjust_ff_dim=False,
    num_hidden_layers=4,
    num_attention_heads=3,
    num_key_value_heads=1,
    max_position_embeddings=1024,
    layer_types=["conv", "full_attention", "conv", "conv"],
    conv_L_cache=3,
    conv_bias=False,
    rope_parameters=dict(rope_theta=1000000.0, rope_type="default"),
    bos_token_id=0,
    eos_token_id=2,
    pad_token_id=1,
    use_cache=False,
    initializer_range=0.25,
)


def standardized(vectors):
    """What the page of nomic-embed-text 1.5 does with the means: a layer norm without weights."""
    return torch.nn.functional.layer_norm(vectors, vectors.shape[-1:])


def gemma_behind(width):
    identity = torch.nn.Identity()
    wider = models.Dense(width, 96, bias=False, activation_function=identity)
    narrower = models.Dense(96, width, bias=False, activation_function=identity)
    return [models.Pooling(width, pooling_mode="mean"), wider, narrower, models.Normalize()]


def embedding_gemma2(folder):
    """EmbeddingGemma 2 with what sees and hears; the width of its states."""
    tokenizer = unigram(extra_special_tokens=EMBEDDING_GEMMA2_TOKENS)
    image = dict(patch_size=4, pooling_kernel_size=2)
    EmbeddingGemma2Processor(
        Gemma4AudioFeatureExtractor(), Gemma4ImageProcessor(**image), tokenizer, EmbeddingGemma2VideoProcessor(**image)
    ).save_pretrained(folder)
    of = {f"{name}_id": tokenizer.convert_tokens_to_ids(token) for name, token in EMBEDDING_GEMMA2_TOKENS.items()}
    # As transformers calls it.
    of["eoa_token_index"] = of.pop("eoa_token_id")
    text = EMBEDDING_GEMMA2 | dict(vocab_size=len(tokenizer))
    config = AutoConfig.for_model(
        "embedding_gemma2",
        text_config=text,
        vision_config=EMBEDDING_GEMMA2_SEES,
        audio_config=EMBEDDING_GEMMA2_HEARS,
        video_token_id=len(tokenizer) - 1,
        **of,
    )
    model = AutoModel.from_config(config).eval()
    with torch.no_grad():
        for name, x in [*model.language_model.named_parameters(), *model.language_model.named_buffers()]:
            # New ones are ones.
            if "norm" in name or name.endswith("layer_scalar"):
                x.copy_(0.6 + 0.8 * torch.rand(x.shape))
    model.save_pretrained(folder)
    return EMBEDDING_GEMMA2["embedding_dim"]


def normalized(width):
    return [models.Pooling(width, pooling_mode="mean"), models.Normalize()]


def every_pooling(width):
    modes = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
    pooling = models.Pooling(width, pooling_mode=modes)
    return [pooling, models.Dense(6 * width, 24), models.Dense(24, 16, bias=False, activation_function=torch.nn.Identity())]


CASES = {
    # As MiniLM: the mean, made of length 1. Two prompts.
    "bert": dict(
        config=BERT,
        tokenizer=word_piece,
        behind=normalized,
        limit=32,
        prompts={"query": "what is: ", "passage": "it is: ", "task": "be: "},
    ),
    # Every way of pooling, one behind the other, with dense layers.
    "bert_poolings": dict(config=BERT, tokenizer=word_piece, behind=every_pooling, limit=64, prompts={}),
    # As multilingual BGE: the first position, learned positions that begin behind the padding's.
    "xlm_roberta": dict(
        config=XLM_ROBERTA,
        tokenizer=unigram,
        behind=lambda width: [models.Pooling(width, pooling_mode="cls"), models.Normalize()],
        limit=64,
        prompts={},
    ),
    # As Qwen3-Embedding: the last position of a causal model, whose tokenizer adds the end.
    "qwen3": dict(
        config=QWEN3,
        tokenizer=lambda: unigram("$A </s>"),
        behind=lambda width: [models.Pooling(width, pooling_mode="lasttoken"), models.Normalize()],
        limit=64,
        prompts={"query": "Instruct: find it\nQuery:"},
    ),
    # As EmbeddingGemma: attention in both directions, within windows on some layers, and dense layers behind.
    "gemma3_text": dict(config=GEMMA3, tokenizer=unigram, behind=gemma_behind, limit=64, prompts={"query": "task: a | query: "}),
    # As EmbeddingGemma 2, which also sees and hears: windows that are a radius, inputs for each layer, other heads where everything is seen.
    "embedding_gemma2": dict(
        base=embedding_gemma2,
        behind=normalized,
        limit=64,
        prompts={"query": "task: a | query: ", "document": "title: none | text: "},
    ),
    # As gte-modernbert: windows on two layers of three, whose ends are seen.
    "modernbert": dict(
        config=MODERNBERT,
        tokenizer=lambda: word_piece(False),
        behind=lambda width: [models.Pooling(width, pooling_mode="cls"), models.Normalize()],
        limit=64,
        prompts={},
    ),
    # As nomic-embed-text 1.5, whose folder ends with the mean: a layer norm, then the cut, then the length 1.
    "nomic_bert": dict(
        config=NOMIC,
        tokenizer=word_piece,
        behind=lambda width: [models.Pooling(width, pooling_mode="mean")],
        after=standardized,
        cut=64,
        limit=64,
        prompts={"query": "search_query: ", "document": "search_document: "},
    ),
    # The same with the names that transformers has in memory.
    "nomic_bert_apart": dict(
        config=NOMIC | dict(hidden_size=48),
        save=dict(save_original_format=False),
        tokenizer=word_piece,
        behind=lambda width: [models.Pooling(width, pooling_mode="cls"), models.Normalize()],
        limit=64,
        prompts={},
    ),
    # As CLIP, whose texts have vectors where pictures have theirs.
    "clip": dict(pictures=True, tokenizer=lambda: word_piece(False), limit=64, prompts={}),
    # As LFM2.5-Embedding: attention and convolutions in both directions.
    "lfm2": dict(
        config=LFM2,
        both_ways=True,
        tokenizer=unigram,
        behind=lambda width: [models.Pooling(width, pooling_mode="cls"), models.Normalize()],
        limit=64,
        prompts={"query": "query: ", "document": "document: "},
    ),
    # As LFM2.5-ColBERT: queries are filled up with tokens that no other sees.
    "lfm2_tokens": dict(config=LFM2, both_ways=True, tokenizer=unigram, late={}),
    # As LFM2-ColBERT, which sees nothing that follows; queries as they are.
    "lfm2_tokens_causal": dict(config=LFM2, tokenizer=unigram, late=dict(do_query_expansion=False)),
    # As other ColBERT models, whose queries are filled up with tokens that are seen, or are not.
    "bert_tokens": dict(config=BERT, tokenizer=word_piece, late=dict(attend_to_expansion_tokens=True, query_length=32)),
    "modernbert_tokens": dict(config=MODERNBERT, tokenizer=lambda: word_piece(False), late=dict(query_length=32)),
    # What the makers' configuration can say besides: biases, another gate, half of each head turned, in neighboring pairs.
    "nomic_bert_makers": dict(
        nomic=dict(
            activation_function="geglu",
            qkv_proj_bias=True,
            mlp_fc1_bias=True,
            mlp_fc2_bias=True,
            rotary_emb_fraction=0.5,
            rotary_emb_interleaved=True,
            pad_vocab_size_multiple=64,
        ),
        tokenizer=word_piece,
        pooling="cls",
        limit=64,
        prompts={},
    ),
    # As nomic-embed-text 2: experts on every other layer.
    "nomic_bert_moe": dict(
        nomic=dict(
            n_layer=3,
            n_inner=32,
            activation_function="gelu",
            qkv_proj_bias=True,
            mlp_fc1_bias=True,
            mlp_fc2_bias=True,
            type_vocab_size=1,
            num_experts=4,
            moe_top_k=2,
            moe_every_n_layers=2,
            moe_normalize_expert_weights=False,
            num_shared_experts=0,
            ffn_div=1,
            expert_choice_router=False,
        ),
        tokenizer=unigram,
        pooling="mean",
        limit=64,
        prompts={"query": "search_query: ", "passage": "search_document: "},
    ),
    "modernbert_ranker": dict(config=MODERNBERT, tokenizer=lambda: word_piece(False), limit=64),
    # As Qwen3-Reranker: the logit of one token less that of another.
    "qwen3_ranker": dict(config=QWEN3, tokenizer=lambda: unigram("$A", 1024), tokens=(40, 41)),
    # As ms-marco-MiniLM: token types, a pooler and one label.
    "bert_ranker": dict(config=BERT, tokenizer=word_piece, limit=64),
    # As bge-reranker: no token types, a head of its own.
    "xlm_roberta_ranker": dict(config=XLM_ROBERTA, tokenizer=unigram, limit=64),
}


def alone(case, folder):
    """A transformer with its tokenizer; the width of its states."""
    tokenizer = case["tokenizer"]()
    config = AutoConfig.for_model(**case["config"], vocab_size=len(tokenizer))
    AutoModel.from_config(config).eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return config.hidden_size


def embedder(case, folder):
    base = folder / "base"
    width = case.get("base", lambda at: alone(case, at))(base)
    first = models.Transformer(str(base), max_seq_length=case["limit"])
    whole = SentenceTransformer(modules=[first, *case["behind"](width)], device="cpu", prompts=case["prompts"] or None)
    whole.save(str(folder))
    shutil.rmtree(base)
    whole = SentenceTransformer(str(folder), device="cpu", model_kwargs={"attn_implementation": "eager"})
    if "both_ways" in case:
        named_both_ways(folder)
    if "save" in case:
        whole[0].model.save_pretrained(folder, **case["save"])
    after = case.get("after")
    unit = torch.nn.functional.normalize

    def encode(text, name):
        vector = whole.encode([text], prompt_name=name, convert_to_tensor=True)
        return after(vector) if after else vector

    expect(case, folder, whole.tokenizer, encode, lambda v: unit(v) if after else v)


def named_both_ways(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | dict(architectures=["Lfm2BidirectionalModel"]), indent=2) + "\n")


def of_tokens(case, folder):
    tokenizer = case["tokenizer"]()
    count = len(tokenizer) + len(late_interaction.MARKS)
    config = AutoConfig.for_model(**case["config"], vocab_size=count)
    AutoModel.from_config(config).eval().save_pretrained(folder)
    settings = late_interaction.write(case, folder, tokenizer, config.hidden_size)
    whole = MultiVectorEncoder(str(folder), device="cpu", model_kwargs={"attn_implementation": "eager"})
    late_interaction.expect(folder, settings, tokenizer, TEXTS, whole)
    if "both_ways" in case:
        named_both_ways(folder)


def with_pictures(case, folder):
    """A model of pictures and texts, as transformers saves it."""
    tokenizer = case["tokenizer"]()
    tokenizer.save_pretrained(folder)
    sizes = dict(num_hidden_layers=2, num_attention_heads=3, intermediate_size=56, initializer_factor=8.0)
    text = dict(hidden_size=48, projection_dim=40, vocab_size=len(tokenizer), max_position_embeddings=64, bos_token_id=2, eos_token_id=3, pad_token_id=0)
    picture = dict(hidden_size=12, image_size=8, patch_size=4)
    config = AutoConfig.for_model("clip", text_config=text | sizes, vision_config=picture | sizes, projection_dim=40)
    AutoModel.from_config(config).eval().save_pretrained(folder)
    model = CLIPTextModelWithProjection.from_pretrained(folder, attn_implementation="eager").eval()

    def encode(text, name):
        with torch.no_grad():
            return model(torch.tensor([tokenizer(text)["input_ids"]])).text_embeds

    expect(case, folder, tokenizer, encode, lambda v: torch.nn.functional.normalize(v))


def expect(case, folder, tokenizer, encode, finish):
    """Writes what `encode` gives of texts and their prompts; cuts come before `finish`."""
    rows, vectors = [], []
    for name in [None, *case["prompts"]]:
        for text in TEXTS:
            prompt = case["prompts"].get(name, "")
            vectors.append(encode(text, name)[0])
            ids = tokenizer(prompt + text)["input_ids"]
            assert len(ids) <= case["limit"], (text, len(ids))
            rows.append(dict(text=text, prompt=name, ids=ids))
    (folder / "expected.json").write_text(json.dumps(dict(texts=rows), indent=1) + "\n")
    whole = torch.stack(vectors)
    tensors = {"vectors": finish(whole).contiguous()}
    if "cut" in case:
        tensors["cut"] = finish(whole[:, : case["cut"]]).contiguous()
    save_file(tensors, folder / "expected.safetensors")


def makers_nomic(case, folder):
    """A folder as the makers of Nomic BERT publish theirs, computed by `nomic.py`."""
    tokenizer = case["tokenizer"]()
    config = nomic.CONFIG | case["nomic"]
    config |= dict(vocab_size=len(tokenizer))
    rounded = config | dict(vocab_size=-(-len(tokenizer) // config["pad_vocab_size_multiple"]) * config["pad_vocab_size_multiple"])
    model = nomic.Nomic(rounded).eval()
    tokenizer.save_pretrained(folder)
    save_file(model.state_dict(), folder / "model.safetensors", metadata={"format": "pt"})
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    modules = [
        dict(idx=i, name=str(i), path=path, type=f"sentence_transformers.models.{kind}") for i, (path, kind) in enumerate(kinds)
    ]
    poolings = {"cls": "cls_token", "mean": "mean_tokens"}
    pooling = {f"pooling_mode_{mode}": mode == poolings[case["pooling"]] for mode in poolings.values()}
    files = {
        "config.json": config,
        "modules.json": modules,
        "1_Pooling/config.json": dict(word_embedding_dimension=config["n_embd"], **pooling),
        "sentence_bert_config.json": dict(max_seq_length=case["limit"], do_lower_case=False),
        "config_sentence_transformers.json": dict(prompts=case["prompts"], default_prompt_name=None, similarity_fn_name="cosine"),
    }
    (folder / "1_Pooling").mkdir()
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value, indent=2) + "\n")

    def encode(text, name):
        ids = torch.tensor([tokenizer(case["prompts"].get(name, "") + text)["input_ids"]])
        with torch.no_grad():
            states = model(ids)
        return states[:, 0] if case["pooling"] == "cls" else states.mean(1)

    expect(case, folder, tokenizer, encode, lambda v: torch.nn.functional.normalize(v))


def ranker(case, folder):
    tokenizer = case["tokenizer"]()
    config = AutoConfig.for_model(**case["config"], vocab_size=len(tokenizer), num_labels=1)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    whole = CrossEncoder(
        str(folder), device="cpu", max_length=case["limit"], model_kwargs={"attn_implementation": "eager"}
    )
    rows = []
    for query, document in PAIRS:
        logit = whole.predict([(query, document)], activation_fn=torch.nn.Identity())[0]
        score = whole.predict([(query, document)])[0]
        made = tokenizer(query, document, return_token_type_ids=True)
        rows.append(
            dict(
                query=query,
                document=document,
                ids=made["input_ids"],
                types=made["token_type_ids"],
                logit=float(logit),
                score=float(score),
            )
        )
    (folder / "expected.json").write_text(json.dumps(dict(pairs=rows), indent=1) + "\n")


BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def judge(case, folder):
    """A language model that says yes or no, with the texts of Qwen3-Reranker's page."""
    tokenizer = case["tokenizer"]()
    config = AutoConfig.for_model(**case["config"], vocab_size=len(tokenizer))
    AutoModelForCausalLM.from_config(config).eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    yes, no = case["tokens"]
    kinds = [("0", "", "base.modules.transformer.Transformer"), ("1", "1_LogitScore", "cross_encoder.modules.LogitScore")]
    modules = [dict(idx=int(i), name=i, path=path, type=f"sentence_transformers.{kind}") for i, path, kind in kinds]
    (folder / "modules.json").write_text(json.dumps(modules, indent=2) + "\n")
    (folder / "1_LogitScore").mkdir()
    score = dict(true_token_id=yes, false_token_id=no, module_input_name="causal_logits")
    (folder / "1_LogitScore/config.json").write_text(json.dumps(score, indent=2) + "\n")
    encode = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]
    rows = []
    for query, document in PAIRS:
        inner = f"<Instruct>: {INSTRUCTION}\n<Query>: {query}\n<Document>: {document}"
        ids = encode(BEFORE) + encode(inner) + encode(AFTER)
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1]
        logit = float(logits[yes] - logits[no])
        rows.append(dict(query=query, document=document, ids=ids, logit=logit, score=float(torch.tensor(logit).sigmoid())))
    (folder / "expected.json").write_text(json.dumps(dict(pairs=rows)) + "\n")


# What `late_interaction.both_ways` puts others in place of.
CHANGED = ["create_causal_mask", "create_recurrent_attention_mask", "causal_conv1d_fn"]


def main(names):
    torch.set_num_threads(1)
    with torch.no_grad():
        nomic.check()
    plain = {name: getattr(modeling_lfm2, name) for name in CHANGED}
    for name in names or CASES:
        case = CASES[name]
        for changed, value in plain.items():
            setattr(modeling_lfm2, changed, value)
        if "both_ways" in case:
            late_interaction.both_ways()
        torch.manual_seed(sum(map(ord, name)))
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        makers = [("nomic", makers_nomic), ("late", of_tokens), ("pictures", with_pictures), ("behind", embedder), ("tokens", judge)]
        make = next((make for key, make in makers if key in case), ranker)
        make(case, folder)
        for stray in ["README.md"]:
            (folder / stray).unlink(missing_ok=True)
        print(name, sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()))


if __name__ == "__main__":
    main(sys.argv[1:])
