"""Writes `classifier.pt` and `checkpoint.pt`: state dicts as `torch.save` writes them, with their values beside them.

    python golden/pt2/make_state_dicts.py

`classifier.pt` has the weights of `classifier.pt2`; `checkpoint.pt` has every element type, a view with strides, a
parameter, two names of one tensor, and a number, under `state_dict` beside things that are none.
`checkpoint.safetensors` has the floats of the latter.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file

HERE = Path(__file__).parent

if __name__ == "__main__":
    program = torch.export.load(HERE / "classifier.pt2")
    torch.save(program.module().state_dict(), HERE / "classifier.pt")
    torch.manual_seed(0)
    table = torch.randn(4, 6)
    floats = {
        "f32": torch.randn(3, 2),
        "f16": torch.randn(5).half(),
        "bf16": torch.randn(2, 2).bfloat16(),
        "f64": torch.randn(2, 1, 3, dtype=torch.float64),
        "view": table.t()[1:5, ::2],
        "parameter": torch.nn.Parameter(torch.randn(2)),
        "same": table,
        "scalar": torch.tensor(2.5),
    }
    rest = {
        "count": torch.tensor(7),
        "mask": torch.tensor([True, False]),
        "small": torch.tensor([1, -2, 300], dtype=torch.int16),
    }
    state = torch.nn.modules.module.OrderedDict({**floats, **rest, "note": "not a tensor"})
    torch.save({"epoch": 3, "lr": 1e-3, "state_dict": state, "best": None}, HERE / "checkpoint.pt")
    save_file({k: v.detach().float().contiguous() for k, v in floats.items()}, HERE / "checkpoint.safetensors")
