"""Prefill and decode speed of OpenVINO GenAI on a GGUF file, in the form of `cactus bench --json`.

    openvino_bench.py MODEL.gguf --threads 1 [--prefill 1024] [--decode 100] [--depth 0] [--reps 2]

Needs the package `openvino-genai`; `compare.py --openvino` installs it into a folder of its own. Token ids are random and
new for each repetition, because a prompt that was seen before is answered from its prefix cache.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time

import numpy as np
import openvino as ov
import openvino_genai as genai


def inputs(count: int) -> genai.TokenizedInputs:
    ids = np.array([[random.randrange(1000, 30000) for _ in range(count)]], dtype=np.int64)
    return genai.TokenizedInputs(ov.Tensor(ids), ov.Tensor(np.ones_like(ids)))


def generate(pipe: genai.LLMPipeline, prompt: int, new: int) -> genai.PerfMetrics:
    config = genai.GenerationConfig()
    config.max_new_tokens = new
    config.min_new_tokens = new
    config.ignore_eos = True
    config.do_sample = False
    return pipe.generate(inputs(prompt), config).perf_metrics


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--prefill", type=int, default=1024)
    parser.add_argument("--decode", type=int, default=100)
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--reps", type=int, default=2)
    options = parser.parse_args()

    start = time.perf_counter()
    pipe = genai.LLMPipeline(options.model, "CPU", INFERENCE_NUM_THREADS=options.threads)
    load_ms = 1000 * (time.perf_counter() - start)
    generate(pipe, 64, 4)
    rows = []
    if options.prefill:
        speeds = [1000 * options.prefill / generate(pipe, options.prefill, 1).get_ttft().mean for _ in range(options.reps)]
        rows.append({"name": f"prefill-{options.prefill}", "tok_s_all": speeds})
    if options.decode:
        speeds = []
        for _ in range(options.reps):
            # The time of each token after the first.
            metrics = generate(pipe, options.depth + 1, options.decode + 1)
            speeds.append(1000 / metrics.get_tpot().mean)
        rows.append({"name": f"decode-{options.decode}@{options.depth}", "tok_s_all": speeds})
    for row in rows:
        row["tok_s_median"] = statistics.median(row["tok_s_all"])
    print(json.dumps({"rows": rows, "load_ms": load_ms, "threads": options.threads}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
