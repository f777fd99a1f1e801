"""Random interleavings of open, generate, cancel and close through Python: interleavings.py BUNDLE [ROUNDS [SEED]]"""

from __future__ import annotations

import random
import sys
import threading
import time

import cactus


def use(model: cactus.Model, stream: cactus.AnswerStream, seed: int, wrong: list[BaseException]) -> None:
    """What a thread does with a stream of a model that another may close."""
    draw = random.Random(seed)
    try:
        for _ in range(5):
            try:
                match draw.randrange(7):
                    case 0:
                        stream.cancel()
                    case 1:
                        stream.close()
                    case 2 if draw.randrange(4) == 0:
                        model.close()
                    case 3:
                        model.tokenize("hello")
                    case 4:
                        assert model.chat("hello", max_tokens=3).completion_tokens <= 3
                    case _:
                        with model.generate("hi", max_tokens=draw.randrange(1, 30), ignore_eos=True, stream=True) as own:
                            for place, text in enumerate(own):
                                assert text
                                if place == draw.randrange(30):
                                    break
            except (cactus.ClosedError, cactus.CancelledError):
                pass
    except BaseException as error:  # noqa: BLE001
        wrong.append(error)


def main() -> None:
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else time.time_ns() % (1 << 32)
    print(f"seed {seed}, {rounds} rounds", flush=True)
    draw, wrong = random.Random(seed), []
    read = 0
    for _ in range(rounds):
        model = cactus.Model.load(sys.argv[1], context=128, chunk=16, threads=1, batch=4, progress=False)
        stream = model.generate("hello", max_tokens=60, ignore_eos=True, stream=True)
        threads = [threading.Thread(target=use, args=(model, stream, draw.randrange(1 << 32), wrong)) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            read += sum(1 for _ in stream)
        except (cactus.ClosedError, cactus.CancelledError):
            pass
        for thread in threads:
            thread.join()
        if draw.randrange(2):
            model.close()
        if wrong:
            raise SystemExit(f"{type(wrong[0]).__name__}: {wrong[0]}")
        del model, stream
    print(f"{read} pieces were read")


main()
