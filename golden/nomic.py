"""Nomic BERT as its makers' configurations describe it, for what transformers has no class for: experts, biases, other activations,
and rotation of a part of each head or of neighboring pairs. `check` holds it against transformers where both can do it."""

import torch
from torch import nn
from torch.nn import functional as F

CONFIG = dict(
    model_type="nomic_bert",
    architectures=["NomicBertModel"],
    n_embd=48,
    n_layer=2,
    n_head=3,
    n_inner=64,
    n_positions=64,
    max_trained_positions=64,
    layer_norm_epsilon=1e-5,
    activation_function="swiglu",
    qkv_proj_bias=False,
    mlp_fc1_bias=False,
    mlp_fc2_bias=False,
    rotary_emb_base=1000,
    rotary_emb_fraction=1.0,
    rotary_emb_interleaved=False,
    rotary_emb_scale_base=None,
    rotary_scaling_factor=None,
    pad_vocab_size_multiple=1,
    prenorm=False,
    causal=False,
    type_vocab_size=2,
)
ACTIVATIONS = dict(swiglu=F.silu, geglu=F.gelu, glu=torch.sigmoid, gelu=F.gelu)


class FeedForward(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.act, gated = ACTIVATIONS[c["activation_function"]], c["activation_function"] != "gelu"
        first, second = c["mlp_fc1_bias"], c["mlp_fc2_bias"]
        for name in ["fc11", "fc12"] if gated else ["fc1"]:
            setattr(self, name, nn.Linear(c["n_embd"], c["n_inner"], bias=first))
        self.fc2 = nn.Linear(c["n_inner"], c["n_embd"], bias=second)

    def forward(self, x):
        inner = self.fc11(x) * self.act(self.fc12(x)) if hasattr(self, "fc11") else self.act(self.fc1(x))
        return self.fc2(inner)


class Experts(nn.Module):
    """Shares of the chosen are those of all, not made to sum to one; one bias for all experts together."""

    def __init__(self, c):
        super().__init__()
        self.count, self.top, self.wide = c["num_experts"], c["moe_top_k"], c["n_inner"]
        self.router = nn.ModuleDict({"layer": nn.Linear(c["n_embd"], self.count, bias=False)})
        inner = nn.Module()
        inner.w1 = nn.Parameter(torch.empty(self.count * self.wide, c["n_embd"]))
        inner.w2 = nn.Parameter(torch.empty(self.count * self.wide, c["n_embd"]))
        self.experts = nn.Module()
        self.experts.mlp = inner
        self.experts.bias = nn.Parameter(torch.empty(c["n_embd"]))

    def forward(self, x):
        shares, ids = self.router["layer"](x).softmax(-1).topk(self.top, dim=-1)
        w1, w2 = (w.view(self.count, self.wide, -1) for w in (self.experts.mlp.w1, self.experts.mlp.w2))
        rows = []
        for row, own, of in zip(x[0], shares[0], ids[0]):
            rows.append(sum(s * (F.gelu(w1[e] @ row) @ w2[e]) for s, e in zip(own, of.tolist())))
        return torch.stack(rows)[None] + self.experts.bias


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, width = c, c["n_embd"]
        self.Wqkv = nn.Linear(width, 3 * width, bias=c["qkv_proj_bias"])
        self.out_proj = nn.Linear(width, width, bias=c["qkv_proj_bias"])

    def turned(self, x):
        part = int(x.shape[-1] * self.c["rotary_emb_fraction"])
        angles = torch.arange(x.shape[-2])[:, None] / self.c["rotary_emb_base"] ** (torch.arange(0, part, 2) / part)
        front = x[..., :part]
        if self.c["rotary_emb_interleaved"]:
            a, b = front[..., 0::2], front[..., 1::2]
        else:
            a, b = front.chunk(2, -1)
        pair = [a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()]
        front = torch.stack(pair, -1).flatten(-2) if self.c["rotary_emb_interleaved"] else torch.cat(pair, -1)
        return torch.cat([front, x[..., part:]], -1)

    def forward(self, x):
        q, k, v = (y.view(x.shape[1], self.c["n_head"], -1).transpose(0, 1) for y in self.Wqkv(x)[0].chunk(3, -1))
        q, k = self.turned(q), self.turned(k)
        y = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1) @ v
        return self.out_proj(y.transpose(0, 1).reshape(x.shape))


class Layer(nn.Module):
    def __init__(self, c, experts):
        super().__init__()
        self.attn = Attention(c)
        self.mlp = Experts(c) if experts else FeedForward(c)
        self.norm1, self.norm2 = (nn.LayerNorm(c["n_embd"], eps=c["layer_norm_epsilon"]) for _ in range(2))

    def forward(self, x):
        x = self.norm1(self.attn(x) + x)
        return self.norm2(self.mlp(x) + x)


class Nomic(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, every = c["n_embd"], c.get("moe_every_n_layers", 0)
        tables = dict(word_embeddings=nn.Embedding(c["vocab_size"], width))
        tables["token_type_embeddings"] = nn.Embedding(c["type_vocab_size"], width)
        self.embeddings = nn.ModuleDict(tables)
        self.emb_ln = nn.LayerNorm(width, eps=c["layer_norm_epsilon"])
        layers = [Layer(c, every > 0 and i % every == 1) for i in range(c["n_layer"])]
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList(layers)})
        for name, p in self.named_parameters():
            spread = 0.25 if p.dim() > 1 else 0.1
            nn.init.normal_(p, 1.0 if "norm" in name and name.endswith("weight") else 0.0, spread)

    def forward(self, ids):
        x = self.embeddings["word_embeddings"](ids) + self.embeddings["token_type_embeddings"].weight[0]
        x = self.emb_ln(x)
        for layer in self.encoder["layers"]:
            x = layer(x)
        return x


def check():
    from transformers import AutoConfig, AutoModel

    ours = Nomic(CONFIG | dict(vocab_size=50)).eval()
    sizes = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=64, layer_norm_eps=1e-5)
    theirs = AutoModel.from_config(AutoConfig.for_model("nomic_bert", vocab_size=50, attn_implementation="eager", **sizes)).eval()
    state = {}
    for name, p in ours.state_dict().items():
        new = name.replace("encoder.layers", "layers").replace("emb_ln", "embeddings.LayerNorm").replace("attn.", "self_attn.")
        for old, to in [("out_proj", "o_proj"), ("fc11", "up_proj"), ("fc12", "gate_proj"), ("fc2", "down_proj")]:
            new = new.replace(old, to)
        new = new.replace("norm1", "post_attention_layernorm").replace("norm2", "post_mlp_layernorm")
        if "Wqkv" in new:
            state |= {new.replace("Wqkv", f"{n}_proj"): part for n, part in zip("qkv", p.chunk(3))}
        else:
            state[new] = p
    theirs.load_state_dict(state)
    ids = torch.arange(20)[None] * 7 % 50
    far = (ours(ids) - theirs(ids).last_hidden_state).abs().max()
    assert far < 1e-4, far
