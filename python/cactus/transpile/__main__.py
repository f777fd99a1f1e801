"""`python -m cactus.transpile SOURCE [FOLDER] [options]`: what `cactus transpile` does where Python is needed.

Purpose: the arguments, and a clear word where torch is not installed. The options are those of `cactus transpile`, which
hands them over as they were typed.
"""

import argparse
import importlib.util
import sys

from .errors import TranspileError


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="cactus transpile", description="Make a bundle of a PyTorch model.")
    p.add_argument("source", help="Hugging Face folder or id, FILE.py:NAME, or .pt file")
    p.add_argument("destination", nargs="?", help="folder of the new bundle [default: weights/<name>]")
    p.add_argument("--artifact-dir", help="the same, as an option")
    p.add_argument("--weights-dir", help="a folder of `cactus convert`: its weights, or its bits, are used")
    p.add_argument("--task", default="auto")
    p.add_argument("--prompt", help="text to capture with")
    p.add_argument("--image-file", action="append", default=[], help="image to capture with; may be repeated")
    p.add_argument("--audio-file", help="sound to capture with")
    p.add_argument("--max-new-tokens", type=int, help="taken, and not needed: states grow as they are used")
    bits = (1, 2, 3, 4, 5, 6, 8, 16, 32)
    p.add_argument("--bits", type=int, choices=bits)
    p.add_argument("--embedding-bits", type=int, choices=bits, help="bits of embedding tables")
    p.add_argument("--policy", help="file with bits by name of the weight")
    p.add_argument("--quality-text", help="text to measure a causal language model on, below 8 bits")
    p.add_argument("--no-quality", action="store_true", help="do not measure the bundle")
    p.add_argument("--state-dict", help="weights of a FILE.py:NAME")
    p.add_argument("--init", help="arguments of NAME as a JSON object")
    p.add_argument("--example", action="append", default=[], help="input to capture with: x=x.npy or x=f32[1,64]")
    p.add_argument("--static", action="store_true", help="capture with the sizes of the example alone")
    p.add_argument("--execute-after-transpile", action="store_true")
    p.add_argument("--skip-reference-compare", action="store_true")
    p.add_argument("--component-pipeline", choices=("auto", "on", "off"), default="auto")
    p.add_argument("--components", help="comma-separated components of a model that has several")
    p.add_argument("--trust-remote-code", action="store_true")
    p.add_argument("--local-files-only", action="store_true")
    p.add_argument(
        "--allow-unconverted-weights", action="store_true", help="taken; weights are always read from the source"
    )
    for pattern in ("rms-norm", "rope", "attention"):
        p.add_argument(f"--no-fuse-{pattern}", action="store_true")
    p.add_argument("--force", action="store_true", help="replace a bundle that is already there")
    p.add_argument("--explain", action="store_true", help="say for each pattern where it fired and where not")
    p.add_argument("--json", action="store_true")
    p.add_argument("--result-json")
    return p


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    # The folder may come after options.
    return parser().parse_intermixed_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    if args.source.endswith(".pt2"):
        print("error: a .pt2 archive needs no Python: `cactus transpile FILE.pt2 FOLDER`", file=sys.stderr)
        return 1
    try:
        needs("torch", "PyTorch captures the model")
        if not args.source.endswith((".pt", ".pth")) and ".py:" not in args.source:
            needs("transformers", "transformers builds the model")
        from . import pipeline
    except TranspileError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return pipeline.main(args)


def needs(module: str, why: str) -> None:
    """An error that says how to install `module`, where it is missing."""
    if importlib.util.find_spec(module) is None:
        raise TranspileError(
            f"{why}, and {sys.executable} does not have it: `{sys.executable} -m pip install torch transformers`, or set "
            "CACTUS_PYTHON to a Python that has both. A `.pt2` archive of torch.export needs neither"
        )


if __name__ == "__main__":
    sys.exit(main())
