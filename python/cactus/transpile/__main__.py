"""`python -m cactus.transpile SOURCE [FOLDER] [options]`: what `cactus transpile` does where Python is needed.

Purpose: the arguments, and a clear word where torch is not installed. The options are those of `cactus transpile`, which
hands them over as they were typed.
"""

import argparse
import importlib.util
import sys

from .errors import TranspileError


BITS = (1, 2, 3, 4, 5, 6, 8, 16, 32)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="cactus transpile", description="Make a bundle from a PyTorch model.")
    p.add_argument("source", help="Hugging Face folder or id, FILE.py:NAME, or .pt file")
    p.add_argument("destination", nargs="?", help="folder to write the bundle to [default: weights/NAME]")
    p.add_argument("--artifact-dir", help="the same as destination, as an option")
    p.add_argument("--weights-dir", help="folder made by `cactus convert`, whose weights (or number of bits) are used")
    p.add_argument("--task", default="auto")
    p.add_argument("--prompt", help="example text for the capture")
    p.add_argument("--image-file", action="append", default=[], help="example image for the capture; can be repeated")
    p.add_argument("--audio-file", help="example sound for the capture")
    p.add_argument("--max-new-tokens", type=int, help="accepted and ignored: the KV cache grows as needed")
    p.add_argument("--bits", type=bits_or_average, help="bits for each weight, or an average such as auto:4.5")
    p.add_argument("--embedding-bits", type=int, choices=BITS, help="bits for each weight of embedding tables")
    p.add_argument("--policy", help="TOML file that sets bits by the name of the weight")
    p.add_argument("--calibrate", nargs="?", const="", help="text to calibrate with below 8 bits [default: a built-in text]")
    p.add_argument("--no-calibrate", action="store_true", help="do not calibrate: faster, but much more quality is lost")
    p.add_argument("--calibration-tokens", help="use at most this many tokens of the calibration text")
    p.add_argument("--quality-text", help="text on which a language model below 8 bits is compared with its source")
    p.add_argument("--no-quality", action="store_true", help="do not compare the bundle with its source")
    p.add_argument("--state-dict", help="weights for FILE.py:NAME, written by torch.save")
    p.add_argument("--init", help="arguments for NAME, as a JSON object")
    p.add_argument(
        "--example", action="append", default=[], help="example input for the capture: x=x.npy or x=f32[1,64]"
    )
    p.add_argument("--static", action="store_true", help="fix all sizes to those of the example")
    p.add_argument("--execute-after-transpile", action="store_true")
    p.add_argument("--skip-reference-compare", action="store_true")
    p.add_argument("--component-pipeline", choices=("auto", "on", "off"), default="auto")
    p.add_argument("--components", help="make only these components, separated by commas")
    p.add_argument("--trust-remote-code", action="store_true")
    p.add_argument("--local-files-only", action="store_true")
    p.add_argument(
        "--allow-unconverted-weights",
        action="store_true",
        help="accepted and ignored: the weights are read from the source",
    )
    for pattern in ("rms-norm", "rope", "attention"):
        p.add_argument(f"--no-fuse-{pattern}", action="store_true")
    p.add_argument("--force", action="store_true", help="replace an existing bundle")
    p.add_argument(
        "--explain", action="store_true", help="print which patterns were fused and where, and why a near match was not"
    )
    p.add_argument("--json", action="store_true")
    p.add_argument("--result-json")
    return p


def bits_or_average(text: str) -> int | str:
    """The bits of `--bits`, or `auto:AVERAGE` as it was typed."""
    try:
        if text.startswith("auto:") and 2.125 <= float(text.removeprefix("auto:")) <= 16:
            return text
        if int(text) in BITS:
            return int(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"expected 1 to 6, 8, 16, 32 or an average such as auto:4.5, found {text!r}")


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    # The folder may come after options.
    return parser().parse_intermixed_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    if args.source.endswith(".pt2"):
        print("error: a .pt2 file needs no Python; run `cactus transpile FILE.pt2 FOLDER`", file=sys.stderr)
        return 1
    try:
        needs("torch", "capturing a model needs PyTorch")
        if not args.source.endswith((".pt", ".pth")) and ".py:" not in args.source:
            needs("transformers", "building this model needs transformers")
        from . import pipeline
    except TranspileError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return pipeline.main(args)


def needs(module: str, why: str) -> None:
    """An error that says how to install `module`, where it is missing."""
    if importlib.util.find_spec(module) is None:
        raise TranspileError(
            f"{why}, and {sys.executable} does not have it; run `{sys.executable} -m pip install torch transformers`, or set "
            "CACTUS_PYTHON to a Python that has both. A `.pt2` archive of torch.export needs neither"
        )


if __name__ == "__main__":
    sys.exit(main())
