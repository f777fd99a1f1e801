"""Writes the `.pt2` fixtures of this folder: small programs saved by `torch.export`, with inputs and outputs beside them.

    python golden/pt2/make_pt2.py [case ...]

Needs torch and transformers of `golden/requirements.txt`. Each case gives `<case>.pt2` and `<case>.safetensors`, which
holds `input.<i>.<name>` and `output.<i>` of one or more calls (`1.input...` for a second call of another length).
`greedy.json` has the tokens that language models pick after a prompt, each computed from the whole sequence.
`seeing/<case>/` has the components of a model of `golden/seeing`, whose numbers are there, and `capture.json`, which names them.
"""

import json
import math
import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.export import Dim

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "python"))

from cactus.transpile import model_adapters  # noqa: E402
from cactus.transpile.capture_pytorch import capture_model  # noqa: E402
from cactus.transpile.semantic_ops import captured_as_operations  # noqa: E402

CASES = {}
#: Models of `golden/seeing` that are captured, too.
SEEING = ("smolvlm",)


def case(level="inference"):
    """Registers a case. `level` is the form that is saved: raw (as captured), inference or core (decomposed)."""

    def register(f):
        CASES[f.__name__] = (f, level)
        return f

    return register


def seq(most=64):
    return Dim("seq", min=2, max=most)


def ids(*shape, vocab=64):
    return torch.randint(3, vocab, shape)


# ---- plain modules


@case("raw")
def classifier():
    class TextClassifier(nn.Module):
        def __init__(self, vocab_size=96, embed_dim=16, num_classes=4):
            super().__init__()
            self.embedding = nn.Embedding(vocab_size, embed_dim)
            self.fc1 = nn.Linear(embed_dim, 24)
            self.fc2 = nn.Linear(24, num_classes)

        def forward(self, input_ids):
            x = self.embedding(input_ids)
            x = x.mean(dim=1)
            x = torch.nn.functional.relu(self.fc1(x))
            return self.fc2(x)

    return TextClassifier(), [(ids(1, 12),), (ids(1, 5),)], {"input_ids": {1: seq()}}


@case("core")
def classifier_core():
    return classifier()


@case("raw")
def cnn():
    class Block(nn.Module):
        def __init__(self, n_in, n_out, stride):
            super().__init__()
            self.a = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
            self.n = nn.BatchNorm2d(n_out)
            self.b = nn.Conv2d(n_out, n_out, 3, 1, 1, groups=n_out)
            self.skip = nn.Conv2d(n_in, n_out, 1, stride)

        def forward(self, x):
            return F.relu(self.b(F.silu(self.n(self.a(x)))) + self.skip(x))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 5, 2, 2)
            self.pool = nn.MaxPool2d(3, 2, 1)
            self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2))
            self.avg = nn.AvgPool2d(2, 1)
            self.norm = nn.GroupNorm(4, 16)
            self.head = nn.Linear(16, 10)

        def forward(self, x):
            x = self.blocks(self.pool(F.leaky_relu(self.stem(x), 0.1)))
            x = self.norm(self.avg(x))
            x = F.adaptive_avg_pool2d(x, 1).flatten(1)
            return self.head(x).softmax(-1)

    net = Net()
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_()
            m.running_var.uniform_(0.5, 2.0)
            nn.init.normal_(m.weight)
            nn.init.normal_(m.bias)
    return net, [(torch.randn(1, 3, 33, 30),)], None


@case("core")
def cnn_core():
    return cnn()


@case()
def unet():
    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Conv2d(3, 8, 3, padding=1)
            self.d = nn.Conv2d(8, 16, 3, 2, 1)
            self.u = nn.ConvTranspose2d(16, 8, 2, 2)
            self.v = nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1, groups=2)
            self.o = nn.Conv2d(16, 3, 1)
            self.p = nn.Conv2d(7, 4, 3, padding=2, dilation=2)
            self.ln = nn.LayerNorm(32)

        def forward(self, x):
            a = F.gelu(self.a(x))
            d = F.leaky_relu(self.d(a))
            u = self.u(d)
            y = self.o(torch.cat([a, u], 1))
            y = F.interpolate(y, scale_factor=2.0, mode="bilinear")
            z = F.interpolate(F.hardswish(self.v(u)), scale_factor=1, mode="nearest")
            z = self.p(torch.cat([y, z], 1))
            return self.ln(torch.tanh(z)[..., :32]), F.pixel_shuffle(z, 2).amax((2, 3))

    return UNet(), [(torch.randn(1, 3, 16, 16),)], None


@case("raw")
def tagger():
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(64, 12)
            self.l = nn.LSTM(12, 10, 2, batch_first=True, bidirectional=True)
            self.g = nn.GRU(20, 8, 1, batch_first=True)
            self.o = nn.Linear(8, 5)

        def forward(self, ids):
            x, (h, c) = self.l(self.e(ids))
            x, g = self.g(x)
            return self.o(x).log_softmax(-1), h, c, g

    return Tagger(), [(ids(1, 9),)], None


@case("raw")
def lstm_step():
    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = nn.LSTMCell(6, 5)

        def forward(self, x, h, c):
            return self.c(x, (h, c))

    return Step(), [(torch.randn(2, 6), torch.randn(2, 5), torch.randn(2, 5))], None


@case()
def gpt():
    """Written by hand, attention as products and a registered mask."""

    class Block(nn.Module):
        def __init__(self, d, h, n):
            super().__init__()
            self.h = h
            self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
            self.register_buffer("mask", torch.tril(torch.ones(n, n)).view(1, 1, n, n))

        def forward(self, x):
            b, t, d = x.shape
            q, k, v = self.qkv(self.ln1(x)).split(d, dim=2)
            q, k, v = (y.view(b, t, self.h, d // self.h).transpose(1, 2) for y in (q, k, v))
            a = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(k.size(-1)))
            a = a.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf")).softmax(-1)
            x = x + self.proj((a @ v).transpose(1, 2).contiguous().view(b, t, d))
            return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self, vocab=64, d=32, h=4, layers=2, n=64):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(n, d)
            self.blocks = nn.ModuleList(Block(d, h, n) for _ in range(layers))
            self.ln = nn.LayerNorm(d)
            self.head = nn.Linear(d, vocab, bias=False)
            self.head.weight = self.wte.weight

        def forward(self, input_ids):
            pos = torch.arange(input_ids.shape[1])
            x = self.wte(input_ids) + self.wpe(pos)
            for block in self.blocks:
                x = block(x)
            return self.head(self.ln(x))

    return GPT(), [(ids(1, 11),), (ids(1, 23),)], {"input_ids": {1: seq(63)}}


@case()
def streams():
    """Two residual streams on an axis before the batch, one row of positions each."""

    class Streams(nn.Module):
        def __init__(self, vocab=64, d=16, n=32):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(n, d)
            self.qkv = nn.ModuleList(nn.Linear(d, 3 * d) for _ in range(2))
            self.mix = nn.Parameter(torch.randn(2, 2))
            self.head = nn.Linear(d, vocab)

        def forward(self, input_ids):
            x = self.wte(input_ids) + self.wpe(torch.arange(input_ids.shape[1]))
            x = torch.stack([x, 0.5 * x])
            for qkv in self.qkv:
                q, k, v = (y.unsqueeze(1) for y in qkv(x.mean(0)).chunk(3, -1))
                a = F.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1)
                # Streams are mixed with each other, and each takes the attention with its own sign.
                x = (x.permute(1, 2, 3, 0) @ self.mix.tanh()).permute(3, 0, 1, 2) + torch.stack([a, -a])
            return self.head(F.silu(x[0]) * x[1])

    return Streams(), [(ids(1, 7),), (ids(1, 20),)], {"input_ids": {1: seq(32)}}


@case()
def vit():
    class ViT(nn.Module):
        def __init__(self, d=32):
            super().__init__()
            self.patch = nn.Conv2d(3, d, 4, 4)
            self.cls = nn.Parameter(torch.randn(1, 1, d))
            self.pos = nn.Parameter(torch.randn(1, 17, d))
            layer = nn.TransformerEncoderLayer(d, 4, 64, activation="gelu", batch_first=True, norm_first=True)
            self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(d, 10)

        def forward(self, image):
            x = self.patch(image).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
            return self.head(self.enc(x)[:, 0])

    return ViT(), [(torch.randn(1, 3, 16, 16),)], None


@case()
def odds():
    """What is rare: gated units, weight norm, the inverse of the error function, places written with a step."""

    class Odds(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 8, 3, padding=1), dim=2)

        def forward(self, x):
            y = F.glu(self.conv(x), 1)
            z = torch.erfinv(0.999 * torch.tanh(y))
            # Steps of a fraction, and which of them a number lies between.
            z = z + torch.bucketize(y, torch.arange(1 / 4, 1.0, 1 / 4), right=True)
            w = y.clone()
            w[..., 1:9:3] = z[..., :3]
            return w, z.unsqueeze(1).expand(-1, 2, -1, -1)

    return Odds(), [(torch.randn(1, 4, 10),)], None


@case()
def inverses():
    """Functions that are made of others, bits, and integers of few bits."""

    class Inverses(nn.Module):
        def forward(self, x, n):
            y = torch.tanh(x)
            wide = torch.stack([x, torch.full_like(x, math.inf), 0 / (x - x)])
            floats = (
                torch.atan(x), torch.atan2(x, x.flip(0)), torch.asin(y), torch.acos(y), torch.sinh(x), torch.cosh(x),
                torch.asinh(4 * x), torch.acosh(1.01 + x * x), torch.atanh(0.9 * y), torch.erfc(x), torch.frac(3 * x),
                torch.round(x, decimals=2), torch.logit(torch.sigmoid(x)), torch.logit(x, eps=0.01),
                torch.logaddexp(x, y), torch.isinf(wide).float(), torch.isfinite(wide).float(),
            )  # fmt: skip
            small = (100 * x).to(torch.int8)
            integers = (
                n & 6, n & -4, n | 5, n ^ 3, n << 3, n >> 2, n.to(torch.uint8).long(), n.to(torch.int16).long(),
                (small + small).long(), (200 * x).long().to(torch.uint8).sum(0).to(torch.int64),
            )  # fmt: skip
            return floats + integers

    n = torch.tensor([[0, 1, 5, -3, 300, -200, 70000, -70001]]).repeat(3, 1)
    return Inverses(), [(torch.randn(3, 8), n)], None


@case()
def scans():
    """Running results, what counts or gathers by value, distances, turns."""

    class Scans(nn.Module):
        def __init__(self):
            super().__init__()
            self.bag = nn.EmbeddingBag(12, 4, mode="sum")
            self.mean = nn.EmbeddingBag(12, 4, mode="mean", padding_idx=2)

        def forward(self, x, y, ids, mask):
            most, at = torch.cummax(x, 1)
            least, low = torch.cummin(x, 0)
            lowest, highest = torch.aminmax(x, dim=1)
            variance, mean = torch.var_mean(x, 1)
            spread, middle = torch.std_mean(x, (0, 1))
            flags = mask > 0
            return (
                torch.cumprod(x, 1), torch.logcumsumexp(x, 1), most, at, least, low, lowest, highest, variance, mean,
                spread, middle, torch.histc(x, 5, -1.0, 1.0), torch.masked_scatter(x, flags, y),
                torch.scatter_reduce(x, 1, ids % 7, y[:, :5], "sum"),
                torch.scatter_reduce(x, 1, ids % 7, y[:, :5], "mean", include_self=False),
                self.bag(ids), self.mean(ids), torch.outer(x[0], y[1]), torch.hstack([x, y]), torch.hstack([x[0], y[0]]),
                torch.vstack([x[0], y[0]]), F.cosine_similarity(x, y, dim=1), F.pairwise_distance(x, y),
                F.pairwise_distance(x, y, p=1.0), torch.cdist(x, y), torch.cdist(x, y, p=1.0),
                torch.diagonal(x, 1), torch.diagonal(x.unsqueeze(0).expand(2, -1, -1), -1, 1, 2), torch.rot90(x, 1),
                torch.rot90(x, 2), torch.rot90(x, -1, [1, 0]),
            )  # fmt: skip

    inputs = (torch.randn(4, 7), torch.randn(4, 7), torch.randint(0, 12, (4, 5)), torch.randint(0, 2, (4, 7)))
    return Scans(), [inputs], None


@case()
def standardized():
    """Filters that are standardized as the network runs, by a batch norm of their own statistics, as in ResNetV2; a norm with statistics
    of the batch; a tensor filled with a computed number; the largest and smallest at indices."""

    class Standardized(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 6, 3, padding=1)
            self.norm = nn.BatchNorm2d(6, track_running_stats=False)

        def forward(self, x, y, ids):
            w = self.conv.weight
            w = F.batch_norm(w.reshape(1, 6, -1), None, None, training=True, momentum=0.0, eps=1e-6).reshape_as(w)
            x = self.norm(F.conv2d(x, w, self.conv.bias, padding=1))
            return (
                x, torch.fill(y, x.mean()),
                torch.scatter_reduce(y, 1, ids, y[:, :5], "amax"), torch.scatter_reduce(y, 1, ids, y[:, :5], "amin"),
                torch.scatter_reduce(y, 1, ids, y[:, :5], "amax", include_self=False),
                torch.scatter_reduce(y, 1, ids, y[:, :5], "amin", include_self=False),
            )  # fmt: skip

    return Standardized(), [(torch.randn(2, 3, 6, 5), torch.randn(4, 7), torch.randint(0, 7, (4, 5)))], None


@case()
def windows():
    """Windows as columns and back, grids read at computed places, where the largest is, shuffled channels."""

    class Windows(nn.Module):
        def forward(self, x, grid):
            columns = F.unfold(x, (3, 2), dilation=(1, 2), padding=(1, 0), stride=(2, 1))
            most, at = F.max_pool2d(x, 3, 2, 1, return_indices=True)
            return (
                columns, F.fold(columns, x.shape[-2:], (3, 2), dilation=(1, 2), padding=(1, 0), stride=(2, 1)), most, at,
                F.channel_shuffle(x, 2),
                F.grid_sample(x, grid, align_corners=False), F.grid_sample(x, grid, align_corners=True),
                F.grid_sample(x, 1.5 * grid, padding_mode="border", align_corners=False),
                F.grid_sample(x, grid, mode="nearest", align_corners=False),
            )  # fmt: skip

    return Windows(), [(torch.randn(2, 4, 7, 6), 1.2 * torch.rand(2, 3, 5, 2) * 2 - 1.2)], None


@case()
def sliding():
    """Windows along an axis that varies, one by one, and with a step that skips or leaves something at the end."""

    class Sliding(nn.Module):
        def forward(self, x):
            return x.unfold(1, 4, 1), x.unfold(1, 3, 2).sum(-1), x.unfold(1, 2, 5)

    return Sliding(), [(torch.randn(1, 9, 4),), (torch.randn(1, 14, 4),)], {"x": {1: Dim("seq", min=8, max=64)}}


@case()
def volume():
    """A weight of more axes than are stored."""

    class Volume(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Conv3d(2, 6, 3, padding=1)
            self.n = nn.BatchNorm3d(6)
            self.b = nn.Conv3d(6, 4, (2, 2, 3), stride=2)

        def forward(self, x):
            return self.b(F.relu(self.n(self.a(x))))

    return Volume(), [(torch.randn(1, 2, 4, 6, 5),)], None


# ---- transformers


def text_config(**more):
    return dict(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        initializer_range=0.2,
        **more,
    )


class CausalLM(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, use_cache=False, return_dict=False)[0]


def causal_lm(config, cls):
    # As the adapters capture experts: the weights that were chosen, and products with them.
    config._experts_implementation = "batched_mm"
    return CausalLM(cls(config)), [(ids(1, 9, vocab=96),), (ids(1, 21, vocab=96),)], {"input_ids": {1: seq(128)}}


@case()
def smollm2():
    import transformers as T

    return causal_lm(T.LlamaConfig(**text_config(tie_word_embeddings=True)), T.LlamaForCausalLM)


@case("core")
def smollm2_core():
    return smollm2()


@case("raw")
def llama_eager():
    import transformers as T

    return causal_lm(T.LlamaConfig(**text_config(attn_implementation="eager")), T.LlamaForCausalLM)


@case()
def qwen3():
    import transformers as T

    return causal_lm(T.Qwen3Config(**text_config(head_dim=16)), T.Qwen3ForCausalLM)


@case()
def gemma3():
    import transformers as T

    kinds = ["sliding_attention", "full_attention"]
    return causal_lm(
        T.Gemma3TextConfig(**text_config(head_dim=16, sliding_window=8, layer_types=kinds)), T.Gemma3ForCausalLM
    )


@case()
def lfm2():
    import transformers as T

    return causal_lm(
        T.Lfm2Config(**text_config(layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False)),
        T.Lfm2ForCausalLM,
    )


@case()
def gpt2():
    """Learned positions, products over merged rows."""
    import transformers as T

    config = T.GPT2Config(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=128, initializer_range=0.2)
    return causal_lm(config, T.GPT2LMHeadModel)


@case("raw")
def granite():
    """Scaled logits; not decomposed, so the rotation lies in a subgraph without gradients."""
    import transformers as T

    more = dict(logits_scaling=0.5, embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.2)
    return causal_lm(T.GraniteConfig(**text_config(**more)), T.GraniteForCausalLM)


@case()
def cohere():
    """Neighbors are rotated, queries and keys normalized by layer norms of each head, logits scaled."""
    import transformers as T

    return causal_lm(T.CohereConfig(**text_config(logit_scale=2.0, use_qk_norm=True, rope_theta=5000.0)), T.CohereForCausalLM)


@case("raw")
def glm():
    """Neighbors of the first half of each head are rotated."""
    import transformers as T

    return causal_lm(T.GlmConfig(**text_config(head_dim=16, partial_rotary_factor=0.5)), T.GlmForCausalLM)


@case()
def gptj():
    """Neighbors are rotated by a stored table of sines and cosines; logits have a bias."""
    import transformers as T

    config = T.GPTJConfig(vocab_size=96, n_embd=32, n_layer=2, n_head=2, n_positions=128, rotary_dim=8)
    config.initializer_range = 0.2
    return causal_lm(config, T.GPTJForCausalLM)


@case()
def gpt_oss():
    """Sinks, whose values are above and below those of scores; windows; experts of an unusual gate."""
    import transformers as T

    more = dict(num_local_experts=4, num_experts_per_tok=2, head_dim=8, sliding_window=5) | {"intermediate_size": 16}
    module, calls, shapes = causal_lm(T.GptOssConfig(**(text_config() | more)), T.GptOssForCausalLM)
    for name, x in module.named_parameters():
        if name.endswith("sinks"):
            x.data.copy_(torch.tensor([2.0, -1.0, 0.5, -30.0]))
    return module, calls, shapes


@case()
def bloom():
    """A bias linear in the distance, with a slope for each head; products over merged sequences and heads."""
    import transformers as T

    config = T.BloomConfig(vocab_size=96, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.2)
    return causal_lm(config, T.BloomForCausalLM)


@case()
def llama4():
    """Positions see their own chunk of 6 in one layer and everything before them in the other, which has no rotation."""
    import transformers as T

    more = dict(intermediate_size_mlp=48, head_dim=8, attention_chunk_size=6, moe_layers=[], no_rope_layers=[1, 0])
    config = T.Llama4TextConfig(**text_config(layer_types=["chunked_attention", "full_attention"], **more))
    return causal_lm(config, T.Llama4ForCausalLM)


@case("raw")
def tails():
    """More behind the output head than a chain: bits of the ids choose a bias, small logits are cut off, probabilities."""

    class Tails(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.bias = nn.Embedding(48, 24), nn.Embedding(4, 48)
            self.q, self.k, self.v = (nn.Linear(24, 24) for _ in range(3))
            self.head = nn.Linear(24, 48)

        def forward(self, input_ids):
            x = self.embedding(input_ids)
            q, k, v = (f(x).view(1, -1, 2, 12).transpose(1, 2) for f in (self.q, self.k, self.v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
            logits = 8 * self.head(x + y) + self.bias((input_ids >> 1) & 3 ^ 1)
            logits = torch.where(logits > -10, logits, 2 * logits)
            return F.log_softmax(logits.clamp(-40, 40), dim=-1)

    return Tails(), [(ids(1, 9, vocab=48),), (ids(1, 21, vocab=48),)], {"input_ids": {1: seq(128)}}


@case()
def gemma3n():
    """Four streams of residuals, predicted and corrected around each layer, and inputs for each layer."""
    import transformers as T

    config = T.Gemma3nTextConfig(
        **text_config(
            head_dim=16,
            sliding_window=8,
            layer_types=["sliding_attention", "full_attention"],
            vocab_size_per_layer_input=96,
            hidden_size_per_layer_input=16,
            num_kv_shared_layers=0,
            laurel_rank=8,
            activation_sparsity_pattern=[0.95, 0.0],
        )
    )
    return causal_lm(config, T.Gemma3nForCausalLM)


@case()
def gemma4():
    """Inputs for each layer, keys and values of earlier layers, capped logits."""
    import transformers as T

    config = T.Gemma4TextConfig(
        **text_config(
            head_dim=16,
            global_head_dim=32,
            sliding_window=8,
            layer_types=["sliding_attention", "full_attention"],
            vocab_size_per_layer_input=96,
            hidden_size_per_layer_input=16,
            final_logit_softcapping=30.0,
        )
    )
    return causal_lm(config, T.Gemma4ForCausalLM)


@case()
def qwen3_5():
    """The gated delta rule as one operation; 70 positions are beyond a chunk of the library's own code."""
    import transformers as T

    config = T.Qwen3_5TextConfig(
        **text_config(
            head_dim=16,
            layer_types=["linear_attention", "full_attention"],
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
        )
    )
    module, _, shapes = causal_lm(config, T.Qwen3_5ForCausalLM)
    return module, [(ids(1, 9, vocab=96),), (ids(1, 70, vocab=96),)], shapes


@case()
def qwen3_moe():
    """A router that softmaxes before it chooses; only the chosen experts are computed."""
    import transformers as T

    more = dict(head_dim=16, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, norm_topk_prob=True)
    return causal_lm(T.Qwen3MoeConfig(**text_config(**more)), T.Qwen3MoeForCausalLM)


@case()
def olmoe():
    """As Qwen3, but the shares do not sum to one, and experts are of an odd width."""
    import transformers as T

    more = dict(num_experts=4, num_experts_per_tok=2) | {"intermediate_size": 20}
    return causal_lm(T.OlmoeConfig(**(text_config() | more)), T.OlmoeForCausalLM)


@case()
def lfm2_moe():
    """A router of sigmoids with a bias for the choice alone, beside short convolutions."""
    import transformers as T

    more = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, num_dense_layers=1)
    config = T.Lfm2MoeConfig(**text_config(layer_types=["conv", "full_attention"], **more))
    module, calls, shapes = causal_lm(config, T.Lfm2MoeForCausalLM)
    for name, x in list(module.named_parameters()) + list(module.named_buffers()):
        if name.endswith("expert_bias"):
            with torch.no_grad():
                x.normal_(0.0, 0.3)
    return module, calls, shapes


@case()
def gemma4_moe():
    """Experts beside a gated unit that every position takes, with a factor for each."""
    import transformers as T

    config = T.Gemma4TextConfig(
        **text_config(
            head_dim=16,
            global_head_dim=16,
            sliding_window=8,
            layer_types=["sliding_attention", "full_attention"],
            vocab_size_per_layer_input=96,
            hidden_size_per_layer_input=16,
            enable_moe_block=True,
            num_experts=4,
            top_k_experts=2,
            moe_intermediate_size=16,
        )
    )
    return causal_lm(config, T.Gemma4ForCausalLM)


class Decoder(nn.Module):
    """The decoder of a model that has an encoder, by what the encoder gave."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, decoder_input_ids, encoder_hidden_states):
        hidden = self.model.model.decoder(
            input_ids=decoder_input_ids,
            encoder_hidden_states=encoder_hidden_states,
            use_cache=False,
            return_dict=False,
        )[0]
        return self.model.proj_out(hidden)


@case()
def whisper_decoder():
    """Cross attention: keys and values of the encoder's frames are the same for every token."""
    import transformers as T

    config = T.WhisperConfig(
        vocab_size=96,
        num_mel_bins=16,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        d_model=32,
        max_source_positions=24,
        max_target_positions=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
        init_std=0.2,
    )
    frames = Dim("frames", min=2, max=64)
    calls = [(ids(1, 9, vocab=96), torch.randn(1, 10, 32)), (ids(1, 21, vocab=96), torch.randn(1, 24, 32))]
    shapes = {"decoder_input_ids": {1: seq(64)}, "encoder_hidden_states": {1: frames}}
    return Decoder(T.WhisperForConditionalGeneration(config)), calls, shapes


@case()
def minilm():
    import transformers as T

    config = T.BertConfig(
        vocab_size=96,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.2,
    )

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = T.BertModel(config, add_pooling_layer=False)

        def forward(self, input_ids, attention_mask):
            return self.m(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]

    def call(n, pad):
        mask = torch.ones(1, n, dtype=torch.long)
        mask[:, n - pad :] = 0
        return ids(1, n, vocab=96), mask

    shapes = {"input_ids": {1: (s := seq())}, "attention_mask": {1: s}}
    return Encoder(), [call(12, 3), call(7, 0)], shapes


def greedy(module, prompt, *given, count=24):
    """The tokens of the largest logits. A case where two are nearly as large would test rounding."""
    ids, margins = list(prompt), []
    with torch.no_grad():
        for _ in range(count):
            best = module(torch.tensor([ids]), *given)[0, -1].topk(2)
            margins.append(float(best.values[0] - best.values[1]))
            ids.append(int(best.indices[0]))
    return {"prompt": prompt, "tokens": ids[len(prompt) :], "min_margin": round(min(margins), 4)}


def write_greedy(name, found):
    path = HERE / "greedy.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    known[name] = found
    lines = [f"  {json.dumps(case)}: {json.dumps(known[case])}" for case in sorted(known)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def save(name):
    make, level = CASES[name]
    torch.manual_seed(0)
    module, calls, shapes = make()
    module = module.eval()
    with torch.no_grad(), captured_as_operations():
        program = torch.export.export(module, calls[0], dynamic_shapes=shapes, strict=False)
        if level == "inference":
            program = program.run_decompositions({})
        elif level == "core":
            program = program.run_decompositions()
    for node in program.graph.nodes:
        for key in ("stack_trace", "source_fn_stack", "torch_fn", "from_node", "nn_module_stack"):
            node.meta.pop(key, None)
    program._example_inputs = None
    torch.export.save(program, HERE / f"{name}.pt2")
    values = {}
    names = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    for i, args in enumerate(calls):
        with torch.no_grad():
            outputs = module(*args)
        outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        flat = torch.utils._pytree.tree_leaves(outputs)
        values |= {f"{i}.input.{n}": x.contiguous() for n, x in zip(names, args)}
        values |= {f"{i}.output.{j}": y.contiguous() for j, y in enumerate(flat)}
    save_file(values, HERE / f"{name}.safetensors")
    if isinstance(module, (CausalLM, Decoder)) or name in ("gpt", "streams", "tails"):
        prompt, *given = calls[0]
        write_greedy(name, greedy(module, prompt[0].tolist(), *given))
    size = (HERE / f"{name}.pt2").stat().st_size
    print(f"{name}: {len(program.graph.nodes)} nodes, {size // 1024} kB")


def save_seeing(name):
    """The components of a model of `golden/seeing`, as `cactus transpile` captures them."""
    from transformers import AutoModelForImageTextToText

    source, folder = HERE.parent / "seeing" / name, HERE / "seeing" / name
    model = AutoModelForImageTextToText.from_pretrained(source, dtype=torch.float32)
    task, parts = model_adapters.components(model, "multimodal_causal_lm_logits")
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for part in parts:
        program = capture_model(part.module, tuple(part.inputs.values()), dynamic_shapes=part.dynamic_shapes()).ir_graph
        for node in program.program.graph.nodes:
            node.meta.pop("nn_module_stack", None)
        size = program.save(folder / f"{part.name}.pt2", strip=True).stat().st_size
        entries.append({"name": part.name, "file": f"{part.name}.pt2", "outputs": list(part.outputs)})
        print(f"{name}: {part.name}, {size // 1024} kB")
    text = json.dumps({"name": name, "task": task, "components": entries}, indent=2)
    (folder / "capture.json").write_text(text + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for wanted in sys.argv[1:] or [*CASES, *SEEING]:
        save_seeing(wanted) if wanted in SEEING else save(wanted)
