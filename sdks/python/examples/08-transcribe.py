"""What is said in a recording, and while somebody speaks.

python 08-transcribe.py MODEL SOUND [VAD]
"""

import sys

import cactus
import numpy

with cactus.Transcriber.load(sys.argv[1]) as transcriber:
    transcript = transcriber.transcribe(sys.argv[2], language="en")
    for segment in transcript.segments:
        print(f"{segment.start:.2f} {segment.end:.2f} {segment.text}")

    if len(sys.argv) > 3:
        vad = cactus.Vad.load(sys.argv[3])
        # Here the microphone is silent.
        tenths = [numpy.zeros(1600, dtype=numpy.int16)] * 10
        with cactus.Stream(transcriber, vad, language="en", max_phrase_s=1.0) as stream:
            for event in stream.events(tenths):
                print(event)
