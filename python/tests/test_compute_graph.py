"""The C library below the public package, by that package's own tests; and its graph functions beside PyTorch.

The published source package `cactus-compute` is fetched from the package index when the tests run, and its tests run against our
library, unmodified. Those that are left out are named here, and in docs/reference/c-abi.md with the reasons. The rest calls the C
functions through ctypes and compares with PyTorch.
"""

import ctypes
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "cactus-compute==2.2.2"
FP32 = 2

#: Files of its tests: they import a module that the source package does not carry, or fetch models of the vendor.
NOT_COLLECTED = [
    "test_chat_template_golden",
    "test_cloud_handoff_live",
    "test_server_live",
    "test_tool_constraint_state",
    "test_model",
]
#: Files whose tests call the library, and how many of them pass.
OF_THE_LIBRARY = {"test_graph": 41, "test_bindings": 59}
#: How many tests pass in the other files together; ten more where FastAPI and httpx are installed, for `test_server`.
OF_THE_REST = 112


def library() -> Path:
    if given := os.environ.get("CACTUS_LIB_PATH"):
        return Path(given)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    names = ("libcactus_ffi.so", "libcactus_ffi.dylib", "cactus_ffi.dll")
    built = [p for d in ("release", "debug") for n in names if (p := target / d / n).is_file()]
    if not built:
        pytest.skip("the library is not built: cargo build -p cactus-ffi")
    return max(built, key=lambda p: p.stat().st_mtime)


@pytest.fixture(scope="session")
def package(tmp_path_factory) -> Path:
    """The published source package, unpacked."""
    folder = tmp_path_factory.mktemp("package")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-binary", ":all:", "--no-deps", "-d", folder, PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    archives = list(folder.glob("*.tar.gz"))
    if done.returncode or not archives:
        pytest.skip(f"{PACKAGE} cannot be fetched: {done.stderr.strip()[-200:]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")
    return next(p for p in folder.iterdir() if (p / "tests" / "test_graph.py").is_file())


def passed(package: Path, files: list[str]) -> int:
    """Runs tests of the package, all of which have to pass, and counts them."""
    environment = os.environ | {"CACTUS_LIB_PATH": str(library())}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/{name}.py" for name in files)]
    done = subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    counted = re.search(r"(\d+) passed", done.stdout)
    return int(counted[1]) if counted else 0


@pytest.mark.parametrize("file", OF_THE_LIBRARY)
def test_tests_of_the_published_bindings_pass(package, file):
    assert passed(package, [file]) == OF_THE_LIBRARY[file]


def test_other_tests_of_the_published_package_pass(package, torch):
    pytest.importorskip("transformers")
    left_out = {*NOT_COLLECTED, *OF_THE_LIBRARY}
    files = sorted(path.stem for path in (package / "tests").glob("test_*.py"))
    assert set(NOT_COLLECTED) < set(files)
    assert passed(package, [name for name in files if name not in left_out]) >= OF_THE_REST


class Graph:
    """A graph through its C functions."""

    def __init__(self):
        self.lib = ctypes.CDLL(str(library()))
        self.lib.cactus_graph_create.restype = ctypes.c_void_p
        self.lib.cactus_get_last_error.restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p(self.lib.cactus_graph_create())
        self.arrays = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lib.cactus_graph_destroy(self.handle)

    def call(self, name, *args):
        def word(value):
            if isinstance(value, float):
                return ctypes.c_float(value)
            if isinstance(value, bool):
                return ctypes.c_bool(value)
            return ctypes.c_uint64(value % 2**64) if isinstance(value, int) else value

        if getattr(self.lib, f"cactus_graph_{name}")(self.handle, *map(word, args)) != 0:
            raise RuntimeError(self.lib.cactus_get_last_error().decode())

    def node(self, name, *args) -> int:
        out = ctypes.c_uint64()
        self.call(name, *args, ctypes.byref(out))
        return out.value

    def input(self, array) -> int:
        array = np.ascontiguousarray(array, dtype=np.float32)
        shape = (ctypes.c_size_t * array.ndim)(*array.shape)
        node = self.node("input", shape, array.ndim, FP32)
        self.set(node, array)
        return node

    def set(self, node, array):
        array = np.ascontiguousarray(array, dtype=np.float32)
        self.call("set_input", node, array.ctypes.data_as(ctypes.c_void_p), FP32)

    def read(self, node) -> np.ndarray:
        class Info(ctypes.Structure):
            _fields_ = [
                ("precision", ctypes.c_int32),
                ("rank", ctypes.c_size_t),
                ("shape", ctypes.c_size_t * 8),
                ("elements", ctypes.c_size_t),
                ("bytes", ctypes.c_size_t),
            ]

        info, data = Info(), ctypes.c_void_p()
        self.call("get_output_info", node, ctypes.byref(info))
        self.call("get_output_ptr", node, ctypes.byref(data))
        dtype = {0: np.int8, 1: np.float16, 2: np.float32}[info.precision]
        held = ctypes.string_at(data.value, info.bytes)
        return np.frombuffer(held, dtype).reshape(tuple(info.shape[: info.rank])).astype(np.float32)

    def run(self, node) -> np.ndarray:
        self.call("execute")
        return self.read(node)


def sizes(*values):
    return (ctypes.c_size_t * len(values))(*values)


@pytest.fixture
def torch():
    found = pytest.importorskip("torch")
    found.manual_seed(3)
    return found


def close(found, want, atol=2e-4):
    np.testing.assert_allclose(found, np.asarray(want.detach() if hasattr(want, "detach") else want), atol=atol, rtol=2e-4)


def operations(torch):
    """Name, arguments behind the operands, operands, what PyTorch gives."""
    f, r = torch.nn.functional, torch.randn
    x, y, w, b = r(2, 3, 8), r(2, 3, 8), r(8), r(8)
    yield "layernorm", [1e-5, True], [x, w, b], f.layer_norm(x, (8,), w, b, 1e-5)
    yield "rms_norm", [1e-5], [x, w], f.rms_norm(x, (8,), w, 1e-5)
    c = [r(3), r(3)]
    yield "groupnorm", [3, 1e-5], [x, *c], f.group_norm(x, 3, *c, 1e-5)
    stats = [r(3), r(3).abs() + 0.5]
    yield "batchnorm", [1, 1e-5], [x, *c, *stats], f.batch_norm(x, stats[0], stats[1], *c, eps=1e-5)
    for name, want in [("gelu", f.gelu(x, approximate="tanh")), ("gelu_erf", f.gelu(x)), ("silu", f.silu(x)), ("abs", x.abs())]:
        yield name, [], [x], want
    yield "glu", [-1], [x], f.glu(x)
    yield "softmax", [1], [x], x.softmax(1)
    yield "cumsum", [-1], [x], x.cumsum(-1)
    yield "variance", [2], [x], x.var(2, correction=0)
    yield "sum", [-1], [x], x.sum().reshape(1)
    yield "matmul", [False], [x[0], y[0].T], x[0] @ y[0].T
    yield "matmul", [True], [x, y], x @ y.transpose(1, 2)
    yield "unfold", [2, 3, 2], [x], x.unfold(2, 3, 2)
    yield "pad", [sizes(1, 2, 0, 1), 4, 0.5], [x], f.pad(x, (1, 2, 0, 1), value=0.5)
    yield "clamp", [-0.5, 0.25], [x], x.clamp(-0.5, 0.25)
    yield "flatten", [1, 2], [x], x.flatten(1, 2)
    yield "transpose_n", [sizes(2, 0, 1), 3], [x], x.permute(2, 0, 1)
    yield "strided_slice", [2, 1, 3, 2], [x], x[:, :, 1:7:2]
    ids = torch.tensor([[0, 2], [1, 1]])
    yield "gather", [], [x[0], ids], x[0][ids]
    yield "gather_dim", [1], [x[0], torch.tensor([[1, 0], [7, 3], [2, 2]])], x[0].gather(1, torch.tensor([[1, 0], [7, 3], [2, 2]]))
    mask = x > 0
    yield "masked_scatter", [], [x, mask, y], x.masked_scatter(mask, y)
    yield "where", [], [mask, x, y], torch.where(mask, x, y)
    image, weight, bias = r(1, 4, 6, 7), r(6, 2, 3, 3), r(6)
    yield "conv2d", [True, bias, 2, 1, 1, 2], [image, weight], f.conv2d(image, weight, bias, 2, 1, 1, 2)
    full = r(6, 4, 3, 3)
    yield "conv2d_k3s2p1", [False, 0], [image, full], f.conv2d(image, full, None, 2, 1)
    each = r(4, 1, 3, 3)
    yield "conv2d_depthwise_k3s2p1", [False, 0], [image, each], f.conv2d(image, each, None, 2, 1, groups=4)
    wave, taps = r(2, 3, 20), r(5, 3, 3)
    yield "conv1d", [False, 0, 2], [wave, taps], f.conv1d(wave, taps, None, 2)
    yield "conv1d_k3", [2], [wave, taps], f.conv1d(wave, taps, None, 2, 1)
    seven, out = r(3, 7, 5), r(5)
    yield "conv1d_k7s3", [out], [wave, seven], f.conv1d(wave, seven.permute(2, 0, 1), out, 3)
    rows, nine = r(1, 12, 3), r(3, 1, 9)
    yield "conv1d_same_depthwise_k9", [False, 0], [rows, nine], f.conv1d(rows.transpose(1, 2), nine, None, 1, 4, groups=3).transpose(1, 2)
    q, k, v = r(1, 4, 4, 8), r(1, 4, 2, 8), r(1, 4, 2, 8)
    heads = [t.transpose(1, 2) for t in (q, k.repeat_interleave(2, 2), v.repeat_interleave(2, 2))]
    causal = f.scaled_dot_product_attention(*heads, is_causal=True, scale=0.3).transpose(1, 2)
    yield "attention", [0.3, True, 0, 0, False, 0, False], [q, k, v], causal
    added = r(1, 4, 4, 4)
    masked = f.scaled_dot_product_attention(*heads, attn_mask=added, scale=0.3).transpose(1, 2)
    yield "attention", [0.3, False, 0, 0, True, added, True], [q, k, v], masked
    cell = torch.nn.LSTMCell(3, 4)
    step, h, cc = r(2, 3), r(2, 4), r(2, 4)
    want = torch.stack(cell(step, (h, cc)), -1)
    yield "lstm_cell", [], [step, h, cc, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh], want
    signal = r(2, 9)
    yield "rfft", [], [signal], torch.view_as_real(torch.fft.rfft(signal))
    yield "irfft", [9], [torch.view_as_real(torch.fft.rfft(signal))], signal
    logits, table = r(3, 4), r(6, 4)
    yield "logits_tq_softcap", [3.0, 0.5], [logits, table], 3 * torch.tanh((logits @ table.T) * 0.5 / 3)


def test_operations_are_those_of_pytorch(torch):
    count = 0
    for name, arguments, operands, want in operations(torch):
        with Graph() as g:
            nodes = [g.input(t.detach().numpy()) for t in operands]
            # A tensor among the arguments is a node, too.
            arguments = [g.input(a.detach().numpy()) if torch.is_tensor(a) else a for a in arguments]
            order = [*nodes, *arguments]
            found = g.run(g.node(name, *order))
            try:
                close(found, want)
            except AssertionError as e:
                raise AssertionError(f"{name}: {e}") from e
            assert found.shape == tuple(want.shape), name
            count += 1
    assert count > 35


def delta_rule(torch, q, k, v, gate, beta, state, scale):
    out = []
    s = state.permute(0, 2, 1, 3).double()
    for t in range(q.shape[1]):
        kt, qt = k[:, t].double(), q[:, t].double() * scale
        s = s * gate[:, t].double().exp()[..., None, None]
        new = (v[:, t].double() - torch.einsum("bhk,bhkv->bhv", kt, s)) * beta[:, t].double()[..., None]
        s = s + torch.einsum("bhk,bhv->bhkv", kt, new)
        out.append(torch.einsum("bhk,bhkv->bhv", qt, s))
    return torch.cat([torch.stack(out, 1), s.permute(0, 2, 1, 3)], 1).float()


@pytest.mark.parametrize("positions", [1, 5])
def test_gated_delta_rule_goes_on_from_its_state(torch, positions):
    r = torch.randn
    q, k = r(1, positions, 4, 8), torch.nn.functional.normalize(r(1, positions, 4, 8), dim=-1)
    v, gate, beta = r(1, positions, 4, 6), -r(1, positions, 4).abs(), r(1, positions, 4).sigmoid()
    state = r(1, 8, 4, 6)
    want = delta_rule(torch, q, k, v, gate, beta, state, 0.25)
    with Graph() as g:
        nodes = [g.input(t.numpy()) for t in (q, k, v, gate, beta, state)]
        name = "gated_deltanet_decode" if positions == 1 else "gated_deltanet_prefill"
        more = [] if positions == 1 else [64]
        close(g.run(g.node(name, *nodes, *more, 0.25)), want, atol=1e-3)


def test_cached_attention_goes_on_token_by_token(torch):
    f = torch.nn.functional
    q, k, v = torch.randn(1, 6, 4, 8), torch.randn(1, 6, 2, 8), torch.randn(1, 6, 2, 8)
    heads = [t.transpose(1, 2) for t in (q, k.repeat_interleave(2, 2), v.repeat_interleave(2, 2))]
    want = f.scaled_dot_product_attention(*heads, is_causal=True, scale=0.3).transpose(1, 2).numpy()
    with Graph() as g:
        x = [g.input(t[:, :1].numpy()) for t in (q, k, v)]
        caches = [g.node("kv_cache_state", 16, 2, 8, 0, 0, 1) for _ in range(2)]
        g.node("kv_cache_append", x[1], caches[0], 0, 0)
        held = g.node("kv_cache_append", x[2], caches[1], 0, 0)
        y = g.node("attention_cached", *x, *caches, 0.3, 2**64 - 1, 0, 0)
        for i in range(6):
            for node, t in zip(x, (q, k, v)):
                g.set(node, t[:, i : i + 1].numpy())
            close(g.run(y), want[:, i : i + 1])
            assert g.read(held) == [i + 1]


def test_spectrogram_and_filters_are_those_of_transformers():
    audio = pytest.importorskip("transformers.audio_utils")
    wave = np.sin(np.arange(400) * 0.3).astype(np.float32) + np.random.default_rng(1).normal(size=400).astype(np.float32) * 0.1
    filters = audio.mel_filter_bank(129, 20, 0.0, 8000.0, 16000, norm="slaney", mel_scale="slaney")
    want = audio.spectrogram(
        wave,
        audio.window_function(200, "hann"),
        200,
        80,
        fft_length=256,
        power=2.0,
        mel_filters=filters,
        mel_floor=1e-10,
        log_mel="log10",
    )
    with Graph() as g:
        bank = g.node("mel_filter_bank", 129, 20, 0.0, 8000.0, 16000, 1, 2)
        found = g.node("spectrogram", g.input(wave), bank, 200, 80, 256, 2.0, True, 0, 1e-10, 2, 0.0, 0.0, False)
        result = g.run(found)
        np.testing.assert_allclose(g.read(bank), filters, atol=1e-6)
        np.testing.assert_allclose(result, want, atol=2e-3)


def test_bad_calls_are_errors_that_say_what():
    with Graph() as g:
        x = g.input(np.zeros((2, 3)))
        for name, arguments, said in [
            ("add", [x, 99], "99"),
            ("matmul", [x, x, False], "matmul"),
            ("precision_cast", [x, 17], "17"),
            ("quantize_activations", [x], "quantize_activations"),
            ("view", [x, None, 3], "shape"),
            ("view", [x, sizes(7), 1], "view"),
            ("kv_cache_state", [16, 2, 8, 0, 0, 4], "slots"),
            ("mmap_weights", [b"/nowhere/at/all"], "/nowhere/at/all"),
            ("get_output_ptr", [x + 1], "node"),
        ]:
            with pytest.raises(RuntimeError, match=said):
                g.node(name, *arguments)
        for name in ("add", "matmul", "softmax"):
            assert getattr(g.lib, f"cactus_graph_{name}")(None, *[ctypes.c_uint64(0)] * 4) == -1
    # A graph that was destroyed is no graph.
    assert g.lib.cactus_graph_execute(g.handle) == -1
    assert b"closed" in g.lib.cactus_get_last_error()
