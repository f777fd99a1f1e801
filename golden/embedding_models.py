"""Write the tiny golden models that make vectors and scores of texts: random-weight folders of sentence-transformers, and what
sentence-transformers computes from them.

For every case in CASES this writes `embedding/<case>/`: the folder as sentence-transformers saves it (without its README), and two
files of expected results:

  expected.json          texts with the name of their prompt, or pairs of query and document; their token ids (and types); for scores
                         the scores
  expected.safetensors   `vectors`, F32 [texts, dimensions]

The expected results are computed from the folder as written, with `SentenceTransformer.encode` and `CrossEncoder.predict`, one text
at a time, in F32 on one thread with eager attention.

Run: python golden/embedding_models.py [case ...]
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer import modules as models
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers import models as token_models
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification, PreTrainedTokenizerFast

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


def unigram(single="<s> $A </s>", longest=64) -> PreTrainedTokenizerFast:
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
    return PreTrainedTokenizerFast(tokenizer_object=t, model_max_length=longest, mask_token="<mask>", **names)


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


def gemma_behind(width):
    identity = torch.nn.Identity()
    wider = models.Dense(width, 96, bias=False, activation_function=identity)
    narrower = models.Dense(96, width, bias=False, activation_function=identity)
    return [models.Pooling(width, pooling_mode="mean"), wider, narrower, models.Normalize()]


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
    # As gte-modernbert: windows on two layers of three, whose ends are seen.
    "modernbert": dict(
        config=MODERNBERT,
        tokenizer=lambda: word_piece(False),
        behind=lambda width: [models.Pooling(width, pooling_mode="cls"), models.Normalize()],
        limit=64,
        prompts={},
    ),
    "modernbert_ranker": dict(config=MODERNBERT, tokenizer=lambda: word_piece(False), limit=64),
    # As Qwen3-Reranker: the logit of one token less that of another.
    "qwen3_ranker": dict(config=QWEN3, tokenizer=lambda: unigram("$A", 1024), tokens=(40, 41)),
    # As ms-marco-MiniLM: token types, a pooler and one label.
    "bert_ranker": dict(config=BERT, tokenizer=word_piece, limit=64),
    # As bge-reranker: no token types, a head of its own.
    "xlm_roberta_ranker": dict(config=XLM_ROBERTA, tokenizer=unigram, limit=64),
}


def embedder(case, folder):
    tokenizer = case["tokenizer"]()
    config = AutoConfig.for_model(**case["config"], vocab_size=len(tokenizer))
    base = folder / "base"
    AutoModel.from_config(config).eval().save_pretrained(base)
    tokenizer.save_pretrained(base)
    first = models.Transformer(str(base), max_seq_length=case["limit"])
    whole = SentenceTransformer(
        modules=[first, *case["behind"](config.hidden_size)], device="cpu", prompts=case["prompts"] or None
    )
    whole.save(str(folder))
    shutil.rmtree(base)
    whole = SentenceTransformer(str(folder), device="cpu", model_kwargs={"attn_implementation": "eager"})
    rows, vectors = [], []
    for name in [None, *case["prompts"]]:
        for text in TEXTS:
            prompt = case["prompts"].get(name, "")
            vectors.append(whole.encode([text], prompt_name=name, convert_to_tensor=True)[0])
            ids = whole.tokenizer(prompt + text)["input_ids"]
            assert len(ids) <= case["limit"], (text, len(ids))
            rows.append(dict(text=text, prompt=name, ids=ids))
    (folder / "expected.json").write_text(json.dumps(dict(texts=rows), indent=1) + "\n")
    save_file({"vectors": torch.stack(vectors).contiguous()}, folder / "expected.safetensors")


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


def main(names):
    torch.set_num_threads(1)
    for name in names or CASES:
        case = CASES[name]
        torch.manual_seed(sum(map(ord, name)))
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make = embedder if "behind" in case else judge if "tokens" in case else ranker
        make(case, folder)
        for stray in ["README.md"]:
            (folder / stray).unlink(missing_ok=True)
        print(name, sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()))


if __name__ == "__main__":
    main(sys.argv[1:])
