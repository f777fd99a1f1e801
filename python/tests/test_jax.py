"""JAX functions as bundles: the examples of the guide, and primitives beside JAX's own numbers."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from cactus.transpile.capture_jax import JaxGraphSpec, capture_graph  # noqa: E402
from cactus.transpile.errors import TranspileError  # noqa: E402
from cactus.transpile.jax_user_graph_bundle import (  # noqa: E402
    build_jax_user_graph_bundle,
    load_jax_user_graph_bundle,
)


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def both(folder, fn, *args, params=None):
    """The outputs of a function, ours and JAX's."""
    params = {} if params is None else params
    spec = JaxGraphSpec(name="f", fn=fn, example_args=args)
    build_jax_user_graph_bundle(params=params, output_dir=folder / "b", model_id="f", specs=(spec,))
    leaves = jax.tree_util.tree_leaves(args)
    found = load_jax_user_graph_bundle(folder / "b").execute("f", *[np.asarray(x) for x in leaves])
    return [t.numpy() for t in found], [np.asarray(y) for y in jax.tree_util.tree_leaves(fn(params, *args))]


def close(found, want, tolerance=1e-5):
    assert len(found) == len(want)
    for f, w in zip(found, want):
        assert f.shape == w.shape
        assert np.abs(f.astype(np.float64) - w.astype(np.float64)).max() <= tolerance * max(1.0, np.abs(w).max())


def test_function_of_the_guide(tmp_path):
    def model(params, x):
        return jnp.maximum(x @ params["w"] + params["b"], 0)

    params = {"w": jnp.ones((4, 3), jnp.float16), "b": jnp.zeros((3,), jnp.float16)}
    example_x = jnp.ones((2, 4), jnp.float16)
    result = build_jax_user_graph_bundle(
        params=params,
        output_dir=tmp_path / "my-jax-bundle",
        model_id="my-jax-model",
        specs=(JaxGraphSpec(name="forward", fn=model, example_args=(example_x,)),),
    )
    loaded = load_jax_user_graph_bundle(result.output_dir)
    y = loaded.execute("forward", np.ones((2, 4), np.float16))[0].numpy()
    assert np.array_equal(y, np.full((2, 3), 4.0))


def softmax(x):
    return jax.nn.softmax(x, axis=-1)


def scattered(x):
    return (
        x.at[1].set(0.5), x.at[:, jnp.array([2, 0])].set(x[:, :2]), x.at[1, jnp.array([0, 3])].add(1.0),
        x.at[:, 1:3].set(0.0), x.at[:, :, jnp.array([1, 1, 4])].add(x[:, :, :3]), x.at[0, 2].add(x[1, 0]),
    )  # fmt: skip


CASES = {
    "elementwise": lambda p, x: (jnp.tanh(x) + jax.nn.gelu(x), jax.nn.silu(x) ** 3, jnp.log1p(jnp.abs(x)), jnp.exp2(x)),
    "exact gelu": lambda p, x: jax.nn.gelu(x, approximate=False),
    "norms": lambda p, x: (jax.nn.standardize(x), x * jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6)),
    "reductions": lambda p, x: (x.sum(1), x.max(), x.min(0), x.mean((0, 2)), (1.0 + 0.1 * x).prod(2), x.argmax(-1)),
    "softmax": lambda p, x: (softmax(x), jax.nn.log_softmax(x, axis=1), jax.nn.logsumexp(x, axis=0)),
    "shapes": lambda p, x: (x.transpose(2, 0, 1), x.reshape(-1), jnp.flip(x, 1), x[:, 1:, ::2], jnp.stack([x, -x]), jnp.tile(x, (1, 2, 1))),
    "pad and split": lambda p, x: (jnp.pad(x, ((0, 0), (1, 2), (0, 0)), constant_values=0.5), *jnp.split(x, 2, axis=2)),
    "masks": lambda p, x: jnp.where(jnp.tril(jnp.ones((4, 4), bool)), x[:, :4, :4], -jnp.inf).clip(-3, 3),
    "order": lambda p, x: (jnp.sort(x, 1), *jax.lax.top_k(x, 3), jnp.cumsum(x, 1)),
    "index": lambda p, x: (x[0, jnp.array([2, 0, 1])], jnp.take(x, jnp.array([[1, 0]]), axis=1), x[:, jnp.array([3, 3]), :]),
    "products": lambda p, x: (jnp.einsum("bij,bkj->bik", x, x), jnp.einsum("bij,kj->bik", x, x[0]), x @ x[0].T),
    "running": lambda p, x: (jnp.cumprod(x, 1), jax.lax.cummax(x, 2), jax.lax.cummin(x, 1, reverse=True), jax.lax.cumlogsumexp(x, 1)),
    "argsort": lambda p, x: (jnp.argsort(x, 1), jax.lax.sort((x, 2 * x, -x), dimension=2, num_keys=1)),
    "angles": lambda p, x: (jnp.arctan2(x, x[:, ::-1]), jnp.arctan(x), jnp.arcsin(jnp.tanh(x)), jnp.sinh(x), jnp.arcsinh(x)),
    "scatter": lambda p, x: scattered(jnp.asarray(x)),
    "update": lambda p, x: jax.lax.dynamic_update_slice(x, x[:, :1] * 2, (0, 2, 0)),
    "scan": lambda p, x: jax.lax.scan(lambda c, y: (0.5 * c + y, c.sum()), jnp.zeros((4, 6)), jnp.stack([x[0], x[1]])),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_primitives_give_what_jax_gives(tmp_path, name):
    found, want = both(tmp_path, CASES[name], random(2, 4, 6))
    close(found, want)


def test_convolution_network(tmp_path):
    def net(p, x):
        dims = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, p["a"], (2, 2), "SAME", dimension_numbers=dims)
        y = jax.nn.relu(y + p["bias"])
        y = jax.lax.conv_general_dilated(
            y, p["b"], (1, 1), [(1, 1), (1, 1)], dimension_numbers=dims, feature_group_count=8
        )
        y = jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        z = jax.lax.reduce_window(y, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "SAME")
        return y, z.mean((1, 2))

    params = {"a": random(3, 3, 3, 8), "b": random(3, 3, 1, 8, seed=1), "bias": random(8, seed=2)}
    found, want = both(tmp_path, net, random(1, 15, 16, 3, seed=3), params=params)
    close(found, want)


def attention(p, x, memory, mask):
    """Heads of 8 over `x [seq, d]` and `memory [n, d]`."""
    q, k, v = (jnp.einsum("sd,dhe->hse", y, w) for y, w in ((x, p["q"]), (memory, p["k"]), (memory, p["v"])))
    scores = jnp.einsum("hse,hne->hsn", q, k) / np.sqrt(8)
    return jnp.einsum("hsn,hne,hed->sd", softmax(jnp.where(mask, scores, -1e9)), v, p["o"])


def needle(seed=0):
    """An encoder and a decoder that reads it, parameters and functions."""

    def weights(names, at):
        shapes = {"q": (16, 2, 8), "k": (16, 2, 8), "v": (16, 2, 8), "o": (2, 8, 16), "up": (16, 32), "down": (32, 16)}
        return {n: 0.3 * random(*shapes[n], seed=at + i) for i, n in enumerate(names)}

    params = {
        "embed": random(40, 16, seed=seed),
        "encoder": weights(["q", "k", "v", "o", "up", "down"], 10),
        "decoder": {"self": weights(["q", "k", "v", "o"], 20), "cross": weights(["q", "k", "v", "o"], 30)},
    }

    def norm(x):
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)

    def encode(p, src, src_mask):
        x = p["embed"][src]
        x = x + attention(p["encoder"], norm(x), norm(x), src_mask[None])
        x = x + jax.nn.gelu(norm(x) @ p["encoder"]["up"]) @ p["encoder"]["down"]
        return norm(x), src_mask

    def decode(p, tgt, encoder_out, tgt_mask, cross_mask):
        x = p["embed"][tgt]
        x = x + attention(p["decoder"]["self"], norm(x), norm(x), tgt_mask)
        x = x + attention(p["decoder"]["cross"], norm(x), encoder_out, cross_mask[None])
        return norm(x) @ p["embed"].T

    return params, encode, decode


def test_encoder_decoder_runs_end_to_end(tmp_path):
    params, encode, decode = needle()
    src, src_mask = np.array([3, 9, 27, 5, 0, 0]), np.array([1, 1, 1, 1, 0, 0], bool)
    tgt, tgt_mask = np.array([1, 8, 2, 4]), np.tril(np.ones((4, 4), bool))
    example_out, _ = encode(params, src, src_mask)
    result = build_jax_user_graph_bundle(
        params=params,
        output_dir=tmp_path / "needle",
        model_id="needle",
        task="encoder-decoder",
        specs=(
            JaxGraphSpec("encoder", encode, (src, src_mask), ("encoder_out", "encoder_mask")),
            JaxGraphSpec("decoder_prefill", decode, (tgt, example_out, tgt_mask, src_mask), ("logits",)),
        ),
    )
    loaded = load_jax_user_graph_bundle(result.output_dir)
    assert loaded.names == ["encoder", "decoder_prefill"]
    for _ in range(2):
        encoder_out, enc_mask = loaded.execute("encoder", src, src_mask)
        logits = loaded.execute("decoder_prefill", tgt, encoder_out, tgt_mask, enc_mask)[0].numpy()
        want = np.asarray(decode(params, tgt, *encode(params, src, src_mask)[:1], tgt_mask, src_mask))
        close([logits], [want])
        loaded.reset()
    with pytest.raises(TranspileError, match="there is no graph `decoder_step`; the bundle has encoder"):
        loaded.execute("decoder_step", tgt)


def test_params_can_be_quantized(tmp_path):
    params = {"w": random(64, 32)}
    spec = JaxGraphSpec("f", lambda p, x: x @ p["w"], (random(2, 64, seed=1),))
    sizes, errors = {}, {}
    for bits in (32, 8):
        built = build_jax_user_graph_bundle(
            params=params, output_dir=tmp_path / str(bits), model_id="f", specs=(spec,), bits=bits
        )
        sizes[bits] = built.outcome["weights_bytes"]
        y = load_jax_user_graph_bundle(built.output_dir).execute("f", spec.example_args[0])[0].numpy()
        errors[bits] = np.abs(y - spec.example_args[0] @ params["w"]).max()
    assert sizes[8] < 0.5 * sizes[32]
    assert errors[32] < 1e-5 < errors[8] < 0.5


def test_primitive_without_a_row_is_named():
    spec = JaxGraphSpec("f", lambda p, x: jnp.linalg.cholesky(x), (jnp.eye(3),))
    with pytest.raises(TranspileError, match="primitive `cholesky`.*test_jax|primitive `cholesky`"):
        capture_graph(spec, {})


def test_bad_specs_are_refused(tmp_path):
    spec = JaxGraphSpec("f", lambda p, x: x + 1, (jnp.ones(2),), ("a", "b"))
    with pytest.raises(TranspileError, match="1 outputs and 2 names"):
        capture_graph(spec, {})
    for specs, words in [((), "at least one"), ((spec, spec), "same name")]:
        with pytest.raises(TranspileError, match=words):
            build_jax_user_graph_bundle(params={}, output_dir=tmp_path, model_id="m", specs=specs)
