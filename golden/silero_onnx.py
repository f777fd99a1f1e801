"""Write `onnx/silero_vad/`: tiny programs of Silero VAD's shape in ONNX, made up, and what ONNX Runtime makes of a sound by them.

    python golden/silero_onnx.py                                   # pip install numpy safetensors onnx onnxruntime
    python golden/silero_onnx.py silero_vad.onnx 8000 CLIP.s16le   # prints the probabilities of a recording instead, as those
                                                                   # in real/silero_onnx.json

Each has two networks behind a branch, for 2000 and 1000 samples a second. `branches.onnx` has the weights as constants of the branches and
the cell as a node, whose gates are put in order by slices, as `silero_vad.onnx` of the package; in `products.onnx` they belong to the
whole, and the cell is spelled out, as in `silero_vad_op18_ifless.onnx`.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

from silero_vad import made_up

OUT = Path(__file__).resolve().parent / "onnx" / "silero_vad"
NETWORKS = {2000: dict(fft=32, widths=[8, 6, 6, 8], hidden=8), 1000: dict(fft=16, widths=[8, 6, 6, 8], hidden=8)}


class Branch:
    """Nodes of a branch. Names are the same in each, but for those of weights that belong to the whole."""

    def __init__(self, mark, whole):
        self.nodes, self.mark, self.whole = [], mark, whole

    def add(self, op, *inputs, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}.{i}{self.mark}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, name, values, is_weight=False):
        values = np.asarray(values)
        if is_weight and self.whole is not None:
            self.whole.append(numpy_helper.from_array(values, name + self.mark))
            return name + self.mark
        return self.add("Constant", value=numpy_helper.from_array(values, name))

    def i64(self, *values):
        return self.constant("sizes", np.array(values, np.int64))

    def network(self, weights, fft, hidden):
        weight = {name: self.constant(name, values, True) for name, values in weights.items()}
        bins = fft // 2 + 1
        x = self.add("Pad", "input", self.i64(0, 0, 0, fft // 4), mode="reflect")
        x = self.add("Unsqueeze", x, self.i64(1))
        x = self.add("Conv", x, weight["stft_conv.weight"], strides=[fft // 2])
        parts = [self.add("Slice", x, self.i64(a), self.i64(b), self.i64(1)) for a, b in ((0, bins), (bins, 2 * bins))]
        two = self.constant("two", np.float32(2))
        x = self.add("Sqrt", self.add("Add", *(self.add("Pow", part, two) for part in parts)))
        for i, stride in enumerate([1, 2, 2, 1], 1):
            x = self.add("Conv", x, weight[f"conv{i}.weight"], weight[f"conv{i}.bias"], strides=[stride], pads=[1, 1])
            x = self.add("Relu", x)
        x = self.add("Squeeze", x, self.i64(2))
        h, c = (self.add("Gather", "state", self.constant("which", np.int64(i)), axis=0) for i in range(2))
        h, c = (self.cell if self.whole is None else self.products)(weight, x, h, c, hidden)
        state = self.add("Concat", *(self.add("Unsqueeze", s, self.i64(0)) for s in (h, c)), axis=0)
        y = self.add("Relu", self.add("Unsqueeze", h, self.i64(2)))
        y = self.add("Conv", y, weight["final_conv.weight"], weight["final_conv.bias"])
        y = self.add("Squeeze", self.add("Sigmoid", y), self.i64(2))
        shapes = (y, [1, 1]), (state, [2, 1, hidden])
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes]
        return helper.make_graph(self.nodes, "network", [], outputs)

    def cell(self, weight, x, h, c, hidden):
        def gate(name, g):
            return self.add("Slice", weight[name], self.i64(g * hidden), self.i64((g + 1) * hidden), self.i64(0))

        def in_order(kind):
            return self.add("Concat", *(gate(f"lstm_cell.{kind}", g) for g in (0, 3, 1, 2)), axis=0)

        def first(value):
            return self.add("Unsqueeze", value, self.i64(0))

        w, r = in_order("weight_ih"), in_order("weight_hh")
        b = self.add("Concat", in_order("bias_ih"), in_order("bias_hh"), axis=0)
        inputs = [first(x), first(w), first(r), first(b), "", first(h), first(c)]
        _, h, c = self.add("LSTM", *inputs, outputs=3, hidden_size=hidden)
        return [self.add("Squeeze", value, self.i64(0)) for value in (h, c)]

    def products(self, weight, x, h, c, hidden):
        state = self.add("Gemm", h, weight["lstm_cell.weight_hh"], weight["lstm_cell.bias_hh"], transB=1)
        heard = self.add("Gemm", x, weight["lstm_cell.weight_ih"], weight["lstm_cell.bias_ih"], transB=1)
        gates = self.add("Split", self.add("Add", state, heard), outputs=4, axis=1, num_outputs=4)
        i, f, g, o = (self.add(op, part) for op, part in zip(("Sigmoid", "Sigmoid", "Tanh", "Sigmoid"), gates))
        c = self.add("Add", self.add("Mul", f, c), self.add("Mul", i, g))
        return self.add("Mul", o, self.add("Tanh", c)), c


def program(is_whole):
    whole = [] if is_whole else None
    branches = []
    for rate, sizes in NETWORKS.items():
        branch = Branch(f".{rate}" if is_whole else "", whole)
        branches.append(branch.network(made_up(**sizes)[0], sizes["fft"], sizes["hidden"]))
    rate = helper.make_node("Constant", [], ["rate"], value=numpy_helper.from_array(np.int64(2000), "rate"))
    equal = helper.make_node("Equal", ["sr", "rate"], ["is_first"])
    then, other = branches
    either = helper.make_node("If", ["is_first"], ["output", "stateN"], then_branch=then, else_branch=other)
    hidden = NETWORKS[2000]["hidden"]
    info = helper.make_tensor_value_info
    inputs = [info("input", TensorProto.FLOAT, [1, None]), info("state", TensorProto.FLOAT, [2, 1, hidden]), info("sr", TensorProto.INT64, [])]
    outputs = [info("output", TensorProto.FLOAT, [1, 1]), info("stateN", TensorProto.FLOAT, [2, 1, hidden])]
    graph = helper.make_graph([rate, equal, either], "silero_vad", inputs, outputs, whole or [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def probabilities(file, rate, sound):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    named = {i.name: i.shape for i in session.get_inputs()}
    fft = rate * 2 // 125
    chunk, context = 2 * fft, fft // 4
    count = math.ceil(len(sound) / chunk)
    sound = np.concatenate([np.zeros(context), sound, np.zeros(count * chunk - len(sound))]).astype(np.float32)
    state = np.zeros((2, 1, named["state"][2]), np.float32)
    more = {"sr": np.array(rate, np.int64)} if "sr" in named else {}
    found = []
    for i in range(count):
        part = sound[i * chunk :][: context + chunk][None]
        output, state = session.run(None, {"input": part, "state": state, **more})
        found.append(output[0, 0])
    return np.array(found, np.float32)


def main():
    match sys.argv[1:]:
        case []:
            OUT.mkdir(parents=True, exist_ok=True)
            sound = made_up()[1]
            expected = {"sound": sound}
            for name, is_whole in (("branches", False), ("products", True)):
                file = program(is_whole)
                (OUT / f"{name}.onnx").write_bytes(file)
                for rate in NETWORKS:
                    found = probabilities(file, rate, sound)
                    before = expected.setdefault(f"probabilities.{rate}", found)
                    assert np.ptp(found) > 0.2 and np.abs(found - before).max() < 1e-6, (found.min(), found.max())
            save_file(expected, OUT / "expected.safetensors")
        case [file, rate, clip]:
            sound = np.frombuffer(Path(clip).read_bytes(), "<i2") / 32768
            print(json.dumps([round(float(p), 8) for p in probabilities(file, int(rate), sound)]))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
