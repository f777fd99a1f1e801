"""Writes `.pt2` archives without torch: a graph of ATen calls and its tensors.

Purpose: the hand-over of front ends other than torch's own. `ArchiveWriter` collects inputs, constants and calls, each
result with its declared type, and writes the zip that `torch.export.save` writes: entries stored as they are, tensors
aligned, so that they are read in place. It knows no operation; it needs NumPy alone.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np

ALIGNMENT = 64
#: Codes of element types in the schema.
_CODES = {
    "uint8": 1,
    "int8": 2,
    "int16": 3,
    "int32": 4,
    "int64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bool": 12,
}
_SCHEMA = {"major": 8, "minor": 20}


def dtype_code(dtype) -> int:
    """The schema's code of an element type."""
    name = np.dtype(dtype).name
    if name not in _CODES:
        raise ValueError(f"element type {name} cannot be stored; {', '.join(_CODES)} can")
    return _CODES[name]


class Name(str):
    """A value of the graph."""


class Dtype(int):
    """A code of an element type, as an argument."""


class ArchiveWriter:
    """A program under construction."""

    def __init__(self):
        self._nodes: list[dict] = []
        self._values: dict[str, dict] = {}
        self._inputs: list[dict] = []
        self._outputs: list[dict] = []
        self._constants: dict[str, np.ndarray] = {}
        self._parameters: dict[str, np.ndarray] = {}

    def input(self, name: str, shape, dtype) -> Name:
        self._declare(name, shape, dtype)
        self._inputs.append({"user_input": {"arg": {"as_tensor": {"name": name}}}})
        return Name(name)

    def parameter(self, name: str, array: np.ndarray) -> Name:
        """A weight, which may be quantized."""
        value = f"p_{len(self._parameters)}"
        self._declare(value, array.shape, array.dtype)
        self._parameters[name] = array
        self._inputs.append({"parameter": {"arg": {"name": value}, "parameter_name": name}})
        return Name(value)

    def constant(self, array: np.ndarray) -> Name:
        name = f"c_{len(self._constants)}"
        self._declare(name, array.shape, array.dtype)
        self._constants[name] = array
        self._inputs.append({"tensor_constant": {"arg": {"name": name}, "tensor_constant_name": name}})
        return Name(name)

    def call(self, target: str, shape, dtype, /, **arguments) -> Name:
        """One result of `aten.<target>`."""
        return self.calls(target, [(shape, dtype)], **arguments)[0]

    def calls(self, target: str, results: list[tuple], /, as_list: bool = False, **arguments) -> list[Name]:
        """Several results: one argument each or, with `as_list`, a list of tensors."""
        names = []
        for shape, dtype in results:
            name = f"v_{len(self._values)}"
            self._declare(name, shape, dtype)
            names.append(Name(name))
        outputs = [{"as_tensor": {"name": n}} for n in names]
        if as_list:
            outputs = [{"as_tensors": [{"name": n} for n in names]}]
        inputs = [{"name": k, "arg": _argument(v), "kind": 1} for k, v in arguments.items() if v is not None]
        name = target if "." in target else f"{target}.default"
        self._nodes.append({"target": f"torch.ops.aten.{name}", "inputs": inputs, "outputs": outputs, "metadata": {}})
        return names

    def output(self, name: Name) -> None:
        self._outputs.append({"user_output": {"arg": {"as_tensor": {"name": name}}}})

    def shape(self, name: Name) -> tuple[int, ...]:
        return tuple(s["as_int"] for s in self._values[name]["sizes"])

    def save(self, path: str | Path, version: str) -> Path:
        """Writes the archive; `version` says what made the program."""
        path = Path(path)
        graph = {
            "inputs": [],
            "outputs": [o["user_output"]["arg"] for o in self._outputs],
            "nodes": self._nodes,
            "tensor_values": self._values,
            "sym_int_values": {},
        }
        document = {
            "graph_module": {"graph": graph, "signature": {"input_specs": self._inputs, "output_specs": self._outputs}},
            "range_constraints": {},
            "guards_code": [],
            "schema_version": _SCHEMA,
            "torch_version": version,
        }
        weights = self._payloads(self._parameters, "weight_", True)
        constants = self._payloads(self._constants, "tensor_", False)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            root = path.stem
            texts = {
                "archive_format": "pt2",
                "archive_version": "0",
                "byteorder": "little",
                "models/model.json": json.dumps(document),
                "data/weights/model_weights_config.json": json.dumps({"config": weights}),
                "data/constants/model_constants_config.json": json.dumps({"config": constants}),
            }
            for name, text in texts.items():
                _store(archive, f"{root}/{name}", text.encode())
            for folder, arrays, config in (
                ("weights", self._parameters, weights),
                ("constants", self._constants, constants),
            ):
                for name, array in arrays.items():
                    _store(archive, f"{root}/data/{folder}/{config[name]['path_name']}", _little(array).tobytes())
        return path

    def _declare(self, name: str, shape, dtype) -> None:
        self._values[name] = _meta(shape, dtype)

    @staticmethod
    def _payloads(arrays: dict[str, np.ndarray], prefix: str, parameter: bool) -> dict:
        return {
            name: {
                "path_name": f"{prefix}{i}",
                "is_param": parameter,
                "use_pickle": False,
                "tensor_meta": _meta(array.shape, array.dtype),
            }
            for i, (name, array) in enumerate(arrays.items())
        }


def _meta(shape, dtype) -> dict:
    strides, step = [], 1
    for size in reversed(tuple(shape)):
        strides.insert(0, {"as_int": step})
        step *= max(int(size), 1)
    return {
        "dtype": dtype_code(dtype),
        "sizes": [{"as_int": int(n)} for n in shape],
        "strides": strides,
        "storage_offset": {"as_int": 0},
        "requires_grad": False,
        "device": {"type": "cpu", "index": None},
        "layout": 7,
    }


def _little(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)


def _argument(value) -> dict:
    if isinstance(value, Name):
        return {"as_tensor": {"name": value}}
    if isinstance(value, Dtype):
        return {"as_scalar_type": int(value)}
    if isinstance(value, (bool, np.bool_)):
        return {"as_bool": bool(value)}
    if isinstance(value, (int, np.integer)):
        return {"as_int": int(value)}
    if isinstance(value, (float, np.floating)):
        value = float(value)
        words = {float("inf"): "Infinity", float("-inf"): "-Infinity"}
        return {"as_float": "NaN" if value != value else words.get(value, value)}
    if isinstance(value, str):
        return {"as_string": value}
    value = list(value)
    if value and all(isinstance(v, Name) for v in value):
        return {"as_tensors": [{"name": v} for v in value]}
    return {"as_ints": [int(v) for v in value]}


def _store(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """One entry, its data at a multiple of the alignment."""
    entry = zipfile.ZipInfo(name)
    # The local header has 30 bytes, the name, and an extra field of at least 4, which fills up.
    start = archive.fp.tell() + 30 + len(name.encode()) + 4
    padding = -start % ALIGNMENT
    entry.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    archive.writestr(entry, data)
