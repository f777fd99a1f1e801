"""Write the test files beside this program: one synthetic sound in every format that is read, and in some that are not.

    python crates/audio/tests/files/make.py        # needs numpy and a full build of ffmpeg (or: pip install imageio-ffmpeg)

The sound is `truth` in tests/decode.rs: 0.6 s of a tone that rises from 200 Hz to 3 kHz, quieter in the second channel.
"""

import shutil
import subprocess
import tempfile
import wave
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
SECONDS = 0.6


def ffmpeg():
    found = shutil.which("ffmpeg")
    if found:
        return found
    import imageio_ffmpeg

    return imageio_ffmpeg.get_ffmpeg_exe()


def write_wav(path, rate, channels):
    t = np.arange(round(SECONDS * rate)) / rate
    sound = 0.4 * np.sin(2 * np.pi * (200 * t + 2800 / (2 * SECONDS) * t * t))
    frames = np.stack([sound * (1 if c == 0 else 0.5) for c in range(channels)], axis=1)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.round(frames * 32767).astype("<i2").tobytes())


# name, rate, channels, arguments
FILES = [
    ("mono_44k.mp3", 44100, 1, "-c:a libmp3lame -b:a 48k"),
    ("stereo_24k.mp3", 24000, 2, "-c:a libmp3lame -b:a 48k"),
    ("vbr_48k.mp3", 48000, 1, "-c:a libmp3lame -q:a 7"),
    ("untagged_44k.mp3", 44100, 1, "-c:a libmp3lame -b:a 48k -write_xing 0 -id3v2_version 0"),
    ("stereo_44k.ogg", 44100, 2, "-c:a libvorbis -q:a 0"),
    ("mono_16k.ogg", 16000, 1, "-c:a libvorbis -q:a 2"),
    ("mono_music.opus", 48000, 1, "-c:a libopus -b:a 32k -application audio"),
    ("mono_speech.opus", 16000, 1, "-c:a libopus -b:a 12k -application voip"),
    ("mono_hybrid.opus", 48000, 1, "-c:a libopus -b:a 24k -application voip -frame_duration 40"),
    ("stereo_short.opus", 48000, 2, "-c:a libopus -b:a 48k -frame_duration 5"),
    ("surround.opus", 48000, 6, "-c:a libopus -b:a 96k"),
    ("mono_opus.webm", 48000, 1, "-c:a libopus -b:a 32k -f webm"),
    ("stereo_44k.m4a", 44100, 2, "-c:a aac -b:a 48k"),
    ("mono_16k.m4a", 16000, 1, "-c:a aac -b:a 24k"),
    ("fragmented_44k.m4a", 44100, 1, "-c:a aac -b:a 48k -movflags +frag_keyframe+empty_moov"),
    ("mono_alac.m4a", 16000, 1, "-c:a alac"),
    ("mono_44k.aac", 44100, 1, "-c:a aac -b:a 48k -f adts"),
    ("mono_16k.flac", 16000, 1, "-c:a flac"),
    ("stereo_16k_s24.flac", 16000, 2, "-c:a flac -sample_fmt s32 -bits_per_raw_sample 24"),
    ("mono_16k_flac.ogg", 16000, 1, "-c:a flac -f ogg"),
    ("alaw_8k.wav", 8000, 1, "-c:a pcm_alaw"),
    ("mulaw_8k.wav", 8000, 1, "-c:a pcm_mulaw"),
    # With a picture, as a video.
    ("video_and_sound.mp4", 44100, 1, "VIDEO -c:v libx264 -preset ultrafast -c:a aac -b:a 32k"),
    ("video_and_sound.mkv", 44100, 1, "VIDEO -c:v libx264 -preset ultrafast -c:a aac -b:a 32k"),
    ("video_and_sound.webm", 48000, 1, "VIDEO -c:v libvpx -b:v 8k -c:a libvorbis -q:a 0"),
    ("video_only.mp4", 44100, 1, "VIDEO -map 1:v -c:v libx264 -preset ultrafast -t 0.2"),
    # Not read.
    ("ac3.mp4", 48000, 1, "-c:a ac3 -b:a 64k -t 0.1"),
    ("adpcm.wav", 8000, 1, "-c:a adpcm_ima_wav -t 0.2"),
]


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name, rate, channels, arguments in FILES:
            wav = Path(folder) / "in.wav"
            write_wav(wav, rate, channels)
            video = "-f lavfi -i color=c=gray:s=16x16:r=10:d=0.6".split() if arguments.startswith("VIDEO") else []
            command = [ffmpeg(), "-v", "error", "-y", "-i", str(wav), *video]
            command += arguments.removeprefix("VIDEO").split()
            subprocess.run([*command, "-map_metadata", "-1", "-fflags", "+bitexact", str(HERE / name)], check=True)
            print(f"{name}: {(HERE / name).stat().st_size} bytes")
            if name.endswith(".opus") and channels == 1:
                # A sample in 32 of what libopus decodes, to compare with.
                raw = [ffmpeg(), "-v", "error", "-c:a", "libopus", "-i", str(HERE / name), "-f", "s16le", "-ar", "48000", "-"]
                samples = np.frombuffer(subprocess.run(raw, check=True, capture_output=True).stdout, "<i2")
                (HERE / f"{name}.s16le").write_bytes(samples[::32].tobytes())


main()
