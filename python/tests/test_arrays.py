"""Arrays of functions: read where they lie, in and out, by DLPack, by NumPy and by torch."""

from __future__ import annotations

import gc
import shutil
import sys
import weakref

import numpy as np
import pytest
from cactus.bindings.cactus import Graph, Tensor
from cactus.transpile import program
from cactus.transpile.errors import TranspileError

native = pytest.importorskip("cactus._native", reason="the extension module is not built: pip install ./python")

SHAPE = (1, 3, 33, 30)
#: NumPy hands over a type, or takes the newest form, from this version on.
NEW_NUMPY = tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1)


@pytest.fixture(scope="module")
def bundles(fixtures, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles")
    for case in ("cnn", "classifier"):
        program.transpile(fixtures / f"{case}.pt2", folder / case, "--task", "function")
    return folder


@pytest.fixture()
def graph(bundles) -> Graph:
    return Graph(bundles / "cnn")


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    return np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)


@pytest.fixture(scope="module")
def expected(bundles, image) -> np.ndarray:
    return Graph(bundles / "cnn").execute(image)[0].numpy().copy()


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


# ---- out


def test_outputs_are_read_in_place_by_every_way(graph, image):
    [output] = graph.execute(image)
    ways = [output.numpy(), np.asarray(output), np.asarray(output._held), np.from_dlpack(output), np.from_dlpack(output._held)]
    assert len({address(way) for way in ways}) == 1
    for way in ways:
        assert (way.dtype, way.shape) == (np.float32, output.shape)
    # It belongs to the caller: what one writes, all see.
    output.numpy()[...] = 7
    assert all((way == 7).all() for way in ways)


def test_outputs_outlive_everything_they_came_from(bundles, tmp_path, image, expected):
    shutil.copytree(bundles / "cnn", tmp_path / "cnn")
    graph = Graph(tmp_path / "cnn")
    [output] = graph.execute(image)
    array, held = np.from_dlpack(output), weakref.ref(output)
    graph.execute(image * 2)
    del graph, output
    program._function.cache_clear()
    shutil.rmtree(tmp_path / "cnn")
    gc.collect()
    assert held() is None
    assert np.array_equal(array, expected)


def test_a_copy_is_another_array(graph, image, expected):
    [output] = graph.execute(image)
    capsule = output.__dlpack__(copy=True, max_version=(1, 0))

    class Holder:
        def __dlpack__(self, **_):
            return capsule

        def __dlpack_device__(self):
            return (1, 0)

    copied = native.Input(Holder())
    output.numpy()[...] = 0
    [again] = program.run(graph.bundle, {graph.inputs[0]["name"]: image}, program.components(graph.bundle)[0]["name"])
    assert np.array_equal(np.asarray(again[1]), expected)
    assert copied.shape == output.shape
    assert address(np.array(output, copy=True)) != address(output.numpy())


def test_capsules_have_the_form_that_is_asked_for(graph, image):
    [output] = graph.execute(image)
    assert output.__dlpack_device__() == (1, 0)
    for asked, name in [({}, "dltensor"), ({"max_version": (0, 8)}, "dltensor"), ({"max_version": (1, 1)}, "dltensor_versioned")]:
        assert f'"{name}"' in repr(output.__dlpack__(**asked))
    for asked in ({"stream": 1}, {"dl_device": (2, 0)}):
        with pytest.raises(BufferError, match="memory of the CPU"):
            output.__dlpack__(**asked)
    # Nobody takes these: they free themselves.
    for _ in range(1000):
        output.__dlpack__(), output.__dlpack__(max_version=(1, 0))


class Once:
    """Gives the same capsule every time."""

    def __init__(self, array, **asked):
        self.capsule = array.__dlpack__(**asked)

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize("asked", [{}, {"max_version": (1, 0)}])
def test_a_capsule_is_taken_once(graph, image, asked):
    [output] = graph.execute(image)
    once = Once(output, **asked)
    assert native.Input(once).shape == output.shape
    with pytest.raises(BufferError, match="was taken"):
        native.Input(once)
    with pytest.raises(TranspileError, match="was taken"):
        graph.set_input(0, once)


def test_what_numpy_took_is_not_taken_again(graph, image):
    [output] = graph.execute(image)
    once = Once(output)
    assert np.from_dlpack(once).shape == output.shape
    with pytest.raises(BufferError, match="was taken"):
        native.Input(once)


def test_outputs_are_freed_with_their_last_reader(graph):
    """Many large outputs, of which none is kept."""
    image = np.zeros(SHAPE, np.float32)

    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    if not sys.platform.startswith("linux"):
        pytest.skip("resident memory is read from /proc")
    for _ in range(200):
        np.from_dlpack(graph.execute(image)[0])
    before = resident()
    for _ in range(1500):
        [output] = graph.execute(image)
        np.from_dlpack(output), output.__dlpack__(copy=True)
    assert resident() - before < 4 << 20


# ---- in


def test_inputs_are_read_in_place_where_they_can_be(graph, image, expected):
    frozen = image.copy()
    frozen.flags.writeable = False
    for array, in_place in [
        (image, True),
        (frozen, NEW_NUMPY),
        (image.astype(np.float64), False),
        (np.asfortranarray(image), False),
        (np.concatenate([image, image])[:1], True),
        (np.concatenate([image, image], axis=3)[..., :30], False),
        (image[..., ::-1].copy()[..., ::-1], False),
    ]:
        if array is not frozen or NEW_NUMPY:
            assert native.Input(array).in_place == in_place
        assert np.array_equal(graph.execute(array)[0].numpy(), expected)


def test_what_an_input_holds_when_the_graph_runs_is_what_counts(graph, image, expected):
    array = np.zeros(SHAPE, np.float32)
    graph.set_input(0, array)
    array[...] = image
    assert np.array_equal(graph.execute()[0].numpy(), expected)


def test_inputs_live_as_long_as_they_are_needed(graph, image, expected):
    array = image.copy()
    gone = weakref.ref(array)
    graph.set_input(0, array)
    del array
    gc.collect()
    assert gone() is not None
    assert np.array_equal(graph.execute()[0].numpy(), expected)
    graph.reset()
    gc.collect()
    assert gone() is None


def test_inputs_that_are_not_aligned_or_in_another_order_of_bytes(graph, image, expected):
    raw = np.zeros(image.nbytes + 1, np.uint8)
    raw[1:] = image.reshape(-1).view(np.uint8)
    odd = raw[1:].view(np.float32).reshape(SHAPE)
    for array in (odd, image.astype(">f4"), image.tolist()):
        assert np.array_equal(graph.execute(array)[0].numpy(), expected)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"])
def test_integers_of_every_width_are_taken(bundles, dtype):
    graph = Graph(bundles / "classifier")
    ids = np.array([[3, 1, 4, 1, 5]])
    want = graph.execute(ids)[0].numpy()
    assert np.array_equal(graph.execute(ids.astype(dtype))[0].numpy(), want)
    wide = np.zeros((1, 10), dtype)
    wide[:, ::2] = ids
    assert np.array_equal(graph.execute(wide[:, ::2])[0].numpy(), want)
    assert np.array_equal(graph.execute(ids[:, ::-1].astype(dtype)[:, ::-1])[0].numpy(), want)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "object"),
        (b"x" * 12, "S12"),
        ("text", "U4"),
        (np.zeros(SHAPE, np.complex64), "complex"),
        (np.zeros(SHAPE, np.uint64), "uint64"),
        (np.zeros(SHAPE, object), "object"),
        (np.zeros(SHAPE[1:], np.float32), "4 axes"),
        (np.float32(1), "4 axes"),
        ([[1], [1, 2]], "no array"),
    ],
)
def test_what_is_not_taken_is_named_with_its_input(graph, value, says):
    with pytest.raises(TranspileError, match=f"(?s)input `.*{says}"):
        graph.set_input(0, value)


def test_other_devices_and_lying_objects_are_refused(graph):
    class Elsewhere:
        def __dlpack__(self, **_):
            raise AssertionError

        def __dlpack_device__(self):
            return (2, 0)

    class NoCapsule(Elsewhere):
        def __dlpack__(self, **_):
            return 5

        def __dlpack_device__(self):
            return (1, 0)

    with pytest.raises(TranspileError, match="kind 2"):
        graph.set_input(0, Elsewhere())
    with pytest.raises(TranspileError, match="PyCapsule"):
        graph.set_input(0, NoCapsule())


def test_wrong_sizes_and_types_are_said_by_the_engine(bundles, graph, image):
    with pytest.raises(TranspileError, match="1, 3, 33, 30"):
        graph.execute(image[:, :, :5])
    with pytest.raises(TranspileError, match="no input"):
        program.run(graph.bundle, {"nothing": image}, "model")
    with pytest.raises(TranspileError, match="i64"):
        program.run(bundles / "classifier", {"input_ids": np.zeros((1, 5), np.float32)}, "model")


def test_an_output_is_an_input_again_without_a_copy(bundles):
    graph = Graph(bundles / "classifier")
    [output] = graph.execute(np.array([[3, 1, 4]]))
    taken = native.Input(output)
    assert taken.in_place and taken.shape == output.shape
    assert isinstance(output, Tensor)


# ---- torch and jax


def test_torch_both_ways(graph, image, expected):
    torch = pytest.importorskip("torch", reason="torch is not installed, so its arrays are not tested")
    tensor = torch.from_numpy(image.copy())
    assert native.Input(tensor).in_place
    [output] = graph.execute(tensor)
    back = torch.from_dlpack(output)
    assert (back.data_ptr(), back.dtype) == (address(output.numpy()), torch.float32)
    del output
    gc.collect()
    assert np.array_equal(back.numpy(), expected)
    for refused in (tensor.to_sparse(), tensor.to("meta")):
        with pytest.raises(TranspileError, match="input `x`: the array cannot be taken"):
            graph.set_input(0, refused)
    # Part of a computation, other types, other strides.
    assert np.array_equal(graph.execute(tensor.clone().requires_grad_())[0].numpy(), expected)
    assert np.array_equal(graph.execute(tensor.double())[0].numpy(), expected)
    assert np.array_equal(graph.execute(tensor.to(memory_format=torch.channels_last))[0].numpy(), expected)
    for dtype in (torch.bfloat16, torch.float16):
        rounded = tensor.to(dtype)
        want = graph.execute(rounded.float())[0].numpy()
        assert np.array_equal(graph.execute(rounded)[0].numpy(), want)


def test_jax_both_ways(graph, image, expected):
    jax = pytest.importorskip("jax", reason="jax is not installed, so its arrays are not tested")
    [output] = graph.execute(jax.numpy.asarray(image))
    assert np.array_equal(output.numpy(), expected)
    assert np.array_equal(np.asarray(jax.dlpack.from_dlpack(output)), expected)
