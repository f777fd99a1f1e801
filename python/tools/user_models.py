"""Models that nobody tuned for, registered in the zoo: networks as people write them, and architectures of torchvision
and timm with random weights, where those are installed.

Purpose: to show that what decides is the operations, not the names. It imports torch; torchvision and timm where they
are there.
"""

import math

import torch
import torch.nn.functional as F
from cactus.transpile.model_adapters import Component
from torch import nn
from torch.export import Dim
from zoo import model


def taking(module, dynamic=None, **inputs):
    """A module with its example inputs."""
    return Component("model", module, inputs, dynamic)


def image(size=64, batch=1):
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(2))


def ids(n=12, most=96):
    return torch.randint(0, most, (1, n), generator=torch.Generator().manual_seed(2))


# ---- written by hand


@model("text classifier (the one of the guide)", "function")
def user_classifier():
    class TextClassifier(nn.Module):
        def __init__(self, vocab_size=1000, embed_dim=64, num_classes=4):
            super().__init__()
            self.embedding = nn.Embedding(vocab_size, embed_dim)
            self.fc1 = nn.Linear(embed_dim, 32)
            self.fc2 = nn.Linear(32, num_classes)

        def forward(self, input_ids):
            x = self.embedding(input_ids).mean(dim=1)
            return self.fc2(F.relu(self.fc1(x)))

    return taking(TextClassifier(), {"input_ids": {1: Dim("seq", min=2, max=512)}}, input_ids=ids())


@model("residual CNN", "function")
def user_resnet():
    class Block(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.a, self.b = nn.Conv2d(n, n, 3, 1, 1, bias=False), nn.Conv2d(n, n, 3, 1, 1, bias=False)
            self.na, self.nb = nn.BatchNorm2d(n), nn.BatchNorm2d(n)

        def forward(self, x):
            return F.relu(x + self.nb(self.b(F.relu(self.na(self.a(x))))))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
            self.body = nn.Sequential(Block(16), nn.Conv2d(16, 32, 1, 2), Block(32))
            self.head = nn.Linear(32, 10)

        def forward(self, x):
            return self.head(F.adaptive_avg_pool2d(self.body(self.stem(x)), 1).flatten(1))

    return taking(Net(), x=image())


@model("U-Net", "function")
def user_unet():
    def double(i, o):
        return nn.Sequential(
            nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU()
        )

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = double(3, 8), double(8, 16), double(16, 32)
            self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, 2), nn.Upsample(scale_factor=2, mode="bilinear")
            self.d, self.e = double(32, 16), double(24, 8)
            self.out = nn.Conv2d(8, 2, 1)

        def forward(self, x):
            a = self.a(x)
            b = self.b(F.max_pool2d(a, 2))
            c = self.c(F.max_pool2d(b, 2))
            d = self.d(torch.cat([self.up2(c), b], 1))
            return self.out(self.e(torch.cat([self.up1(d), a], 1))).sigmoid()

    return taking(UNet(), x=image(32))


@model("LSTM tagger", "function")
def user_lstm():
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(96, 24)
            self.lstm = nn.LSTM(24, 32, 2, batch_first=True, bidirectional=True)
            self.out = nn.Linear(64, 9)

        def forward(self, input_ids):
            return self.out(self.lstm(self.embed(input_ids))[0]).log_softmax(-1)

    return taking(Tagger(), input_ids=ids())


@model("GRU tagger", "function")
def user_gru():
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(96, 24)
            self.gru = nn.GRU(24, 32, batch_first=True)
            self.out = nn.Linear(32, 9)

        def forward(self, input_ids):
            y, last = self.gru(self.embed(input_ids))
            return self.out(y), last

    return taking(Tagger(), input_ids=ids())


@model("probabilistic forecaster (DeepAR-like)", "function")
def user_forecaster():
    class Forecaster(nn.Module):
        """Scales a series, runs it through an LSTM, and gives the parameters of a Student's t distribution."""

        def __init__(self):
            super().__init__()
            self.series = nn.Embedding(8, 4)
            self.rnn = nn.LSTM(1 + 4 + 2, 24, 2, batch_first=True)
            self.mean, self.scale, self.freedom = nn.Linear(24, 1), nn.Linear(24, 1), nn.Linear(24, 1)

        def forward(self, past, which, calendar):
            size = past.abs().mean(1, keepdim=True).clamp(min=1e-3)
            who = self.series(which).unsqueeze(1).expand(-1, past.shape[1], -1)
            y, _ = self.rnn(torch.cat([(past / size).unsqueeze(-1), who, calendar], -1))
            mean = self.mean(y).squeeze(-1) * size
            return mean, F.softplus(self.scale(y)).squeeze(-1) * size, 2.0 + F.softplus(self.freedom(y)).squeeze(-1)

    return taking(
        Forecaster(),
        past=image(4).flatten().view(1, -1)[:, :30],
        which=torch.tensor([3]),
        calendar=image(8).flatten()[:60].view(1, 30, 2),
    )


@model("GPT written by hand", "function")
def user_gpt():
    class Attention(nn.Module):
        def __init__(self, d, heads):
            super().__init__()
            self.heads, self.qkv, self.out = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

        def forward(self, x):
            b, t, d = x.shape
            q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(-1, -2) / math.sqrt(d // self.heads)
            mask = torch.ones(t, t, dtype=torch.bool).tril()
            y = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
            return self.out(y.transpose(1, 2).reshape(b, t, d))

    class GPT(nn.Module):
        def __init__(self, d=32):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(96, d), nn.Embedding(64, d)
            self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(5))
            self.attention = nn.ModuleList(Attention(d, 4) for _ in range(2))
            self.up = nn.ModuleList(nn.Linear(d, 4 * d) for _ in range(2))
            self.down = nn.ModuleList(nn.Linear(4 * d, d) for _ in range(2))

        def forward(self, input_ids):
            x = self.tokens(input_ids) + self.positions(torch.arange(input_ids.shape[1]))
            for i in range(2):
                x = x + self.attention[i](self.norms[2 * i](x))
                x = x + self.down[i](F.gelu(self.up[i](self.norms[2 * i + 1](x))))
            return self.norms[4](x) @ self.tokens.weight.T

    part = taking(GPT(), {"input_ids": {1: Dim("seq", min=2, max=64)}}, input_ids=ids())
    part.task = "causal_lm_logits"
    return part


@model("transformer encoder (torch.nn)", "function")
def user_transformer():
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return taking(module, src=image(16).flatten()[: 10 * 64].view(1, 10, 64))


@model("voice activity detector (shape of Silero's)", "function")
def user_vad():
    class Vad(nn.Module):
        """Short-time spectrum by a convolution, four convolutions, an LSTM step, a probability."""

        def __init__(self):
            super().__init__()
            self.basis = nn.Conv1d(1, 258, 256, 128, bias=False)
            sizes = [(129, 128, 1), (128, 64, 2), (64, 64, 2), (64, 128, 1)]
            self.convs = nn.ModuleList(nn.Conv1d(i, o, 3, s, 1) for i, o, s in sizes)
            self.cell = nn.LSTMCell(128, 128)
            self.out = nn.Conv1d(128, 1, 1)

        def forward(self, samples, h, c):
            y = self.basis(F.pad(samples, (0, 64), mode="reflect").unsqueeze(1))
            y = torch.sqrt(y[:, :129] ** 2 + y[:, 129:] ** 2)
            for conv in self.convs:
                y = F.relu(conv(y))
            h, c = self.cell(y.squeeze(-1), (h, c))
            return self.out(F.relu(h).unsqueeze(-1)).sigmoid().mean(2), h, c

    sound = image(16).flatten()[:576].view(1, 576)
    return taking(Vad(), samples=sound, h=torch.zeros(1, 128), c=torch.zeros(1, 128))


# ---- torchvision and timm


def architectures():
    """Registers what is installed, with random weights."""
    try:
        import torchvision.models as vision
    except Exception:
        vision = None
    for name in (
        "alexnet", "vgg11_bn", "resnet18", "resnext50_32x4d", "densenet121", "mobilenet_v2", "mobilenet_v3_small",
        "shufflenet_v2_x0_5", "squeezenet1_1", "efficientnet_b0", "regnet_y_400mf", "mnasnet0_5", "convnext_tiny",
        "vit_b_16", "swin_t", "googlenet", "inception_v3",
    ):  # fmt: skip
        if vision is None:
            break

        def make(name=name):
            more = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
            if name == "vit_b_16":
                net = vision.VisionTransformer(32, 8, 2, 4, 64, 128)
                return taking(net, x=image(32))
            size = 96 if name == "inception_v3" else 64
            return taking(getattr(vision, name)(weights=None, **more), x=image(size))

        make.__name__ = f"torchvision_{name}"
        model(f"torchvision {name}", "function")(make)
    try:
        import timm
    except Exception:
        return
    for name in (
        "mixer_s32_224",
        "deit_tiny_patch16_224",
        "convmixer_768_32",
        "ghostnet_050",
        "levit_128s",
        "fastvit_t8",
    ):

        def make(name=name):
            size = 64 if name in ("ghostnet_050", "convmixer_768_32", "fastvit_t8") else 224
            return taking(timm.create_model(name, pretrained=False), x=image(size))

        make.__name__ = f"timm_{name}"
        model(f"timm {name}", "function")(make)


architectures()
