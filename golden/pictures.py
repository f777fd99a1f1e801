"""Write golden/pictures: what Pillow makes of sizes and files, and what the image processors of transformers make of pictures.

    python golden/pictures.py            # resize.json and files/; needs Pillow alone
    python golden/pictures.py records    # records.json; needs Pillow, torch, torchvision and transformers
    python golden/pictures.py answer     # reads sizes from stdin, tells digests on stdout: what a test asks Pillow that is there

Pixels are made by a formula, so a case is a few numbers and a digest of the result. Each record is the released configuration of a model.
Where transformers has a processor that uses Pillow, that is the reference. LFM2-VL has none: there its own code runs with Pillow's resize
and NumPy's arithmetic in place of those of torchvision.
"""

import hashlib
import json
import random
import sys
from pathlib import Path

from PIL import Image

OUT = Path(__file__).parent / "pictures"
FILTERS = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC, "lanczos": Image.LANCZOS}


def noise(width, height, seed):
    """Bytes that know no neighbor: each filter overshoots somewhere."""
    start = seed * 2246822519
    return bytes(((i * 2654435761 + start) & 0xFFFFFFFF) >> 24 for i in range(width * height * 3))


def picture(width, height, seed):
    return Image.frombytes("RGB", (width, height), noise(width, height, seed))


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def resized(case):
    width, height, seed, to_width, to_height, filter = case
    made = picture(width, height, seed).resize((to_width, to_height), FILTERS[filter])
    return digest(made.tobytes())


def resize_cases():
    sizes = [
        (1, 1, 1, 1), (1, 1, 5, 7), (5, 7, 1, 1), (1, 300, 300, 1), (1, 3000, 16, 48), (3000, 1, 48, 16), (2, 2, 3, 3), (3, 3, 2, 2),
        (17, 23, 17, 9), (17, 23, 8, 23), (17, 23, 17, 23), (31, 7, 224, 224), (640, 480, 224, 168), (333, 251, 100, 75), (100, 75, 333, 251),
        (64, 64, 63, 65), (255, 256, 257, 255), (1000, 3, 7, 1000), (7, 1000, 1000, 3), (97, 89, 48, 480), (60, 400, 50, 40), (400, 60, 40, 50), (50, 90, 70, 80),
    ]
    return [(w, h, seed, a, b, filter) for seed, (w, h, a, b) in enumerate(sizes) for filter in FILTERS]


def write_resize():
    cases = [{"case": case, "digest": resized(case)} for case in resize_cases()]
    lines = ",\n".join(json.dumps(case) for case in cases)
    (OUT / "resize.json").write_text(f"[\n{lines}\n]\n")


def write_files():
    """Small files of every kind of pixels, and what Pillow makes of them upright: with transparency dropped, and on white."""
    folder = OUT / "files"
    folder.mkdir(parents=True, exist_ok=True)
    smooth = Image.merge("RGB", [Image.linear_gradient("L").rotate(turn).resize((37, 23)) for turn in (0, 90, 180)])
    alpha = Image.radial_gradient("L").resize(smooth.size)
    rgba = smooth.copy()
    rgba.putalpha(alpha)
    gray = smooth.convert("L")
    palette = smooth.quantize(16, dither=Image.Dither.NONE)
    turned = Image.Exif()
    files = {
        "rgb.png": (smooth, {}),
        "rgba.png": (rgba, {}),
        "gray.png": (gray, {}),
        "gray_alpha.png": (Image.merge("LA", (gray, alpha)), {}),
        "bits.png": (gray.point(lambda v: 255 * (v > 100)).convert("1"), {}),
        "palette.png": (palette, {"bits": 4}),
        "palette_clear.png": (palette, {"transparency": bytes(range(0, 256, 16))}),
        "key.png": (smooth, {"transparency": smooth.getpixel((5, 5))}),
        "smooth.jpg": (smooth, {"quality": 95, "subsampling": 0}),
        "halved.jpg": (smooth, {"quality": 90, "subsampling": 2}),
        "progressive.jpg": (smooth, {"quality": 90, "progressive": True}),
        "gray.jpg": (gray, {"quality": 95}),
        "inks.jpg": (smooth.convert("CMYK"), {"quality": 95}),
        "exact.webp": (smooth, {"lossless": True, "exact": True}),
        "exact_alpha.webp": (rgba, {"lossless": True, "exact": True}),
        "lossy.webp": (smooth, {"quality": 90}),
        "lossy_alpha.webp": (rgba, {"quality": 90}),
        "animated.webp": (smooth, {"save_all": True, "append_images": [gray.convert("RGB")], "lossless": True}),
        "animated.png": (smooth, {"save_all": True, "append_images": [gray.convert("RGB")]}),
    }
    for value in range(2, 9):
        turned[0x0112] = value
        files[f"turned_{value}.jpg"] = (smooth, {"quality": 95, "subsampling": 0, "exif": turned.tobytes()})
    files["turned_6.png"] = (smooth, {"exif": files["turned_6.jpg"][1]["exif"]})
    files["turned_6.webp"] = (smooth, {"lossless": True, "exif": files["turned_6.jpg"][1]["exif"]})
    expected = []
    for name, (image, options) in files.items():
        image.save(folder / name, **options)
        expected.append(name)
    for name in ["wide.png", "interlaced.png"]:  # written by write_png
        expected.append(name)
    write_png(folder / "wide.png", smooth, depth=16)
    write_png(folder / "interlaced.png", smooth, interlaced=True)
    results = {}
    for name in sorted(expected):
        results[name] = pixels(folder / name)
        if not name.endswith(".jpg") and not name.startswith("lossy"):
            # To be met exactly.
            results[name] = {key: value if key == "size" else digest(bytes.fromhex(value)) for key, value in results[name].items()}
    (OUT / "files.json").write_text(json.dumps(results, indent=1) + "\n")


def pixels(path):
    from PIL import ImageOps

    with Image.open(path) as image:
        image = ImageOps.exif_transpose(image)
        clear = "A" in image.getbands() or image.info.get("transparency") is not None
        dropped = image.convert("RGB")
        if clear:
            full = image.convert("RGBA")
            dropped = Image.merge("RGB", full.split()[:3])
            white = Image.alpha_composite(Image.new("RGBA", full.size, (255, 255, 255, 255)), full).convert("RGB")
        else:
            white = dropped
        made = {"size": list(dropped.size), "drop": dropped.tobytes().hex(), "white": white.tobytes().hex()}
    if made["drop"] == made["white"]:
        del made["white"]
    return made


def write_png(path, image, depth=8, interlaced=False):
    """A PNG that Pillow reads and does not write."""
    import struct
    import zlib

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    width, height = image.size
    rgb = image.tobytes()

    def pixel(x, y):
        values = rgb[(y * width + x) * 3 :][:3]
        return values if depth == 8 else b"".join(bytes([v, (v * 7) % 256]) for v in values)

    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)] if interlaced else [(0, 0, 1, 1)]
    data = b""
    for left, top, right, down in passes:
        for y in range(top, height, down):
            row = b"".join(pixel(x, y) for x in range(left, width, right))
            data += b"\0" + row if row else b""
    header = struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, int(interlaced))
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + parts)


HALF = {"scale": 1 / 255, "mean": [0.5] * 3, "std": [0.5] * 3}
CLIP = {"scale": 1 / 255, "mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711]}
LAST = {"patches": {"order": "raster", "channels": "last"}}
SMOL = {
    "token": "<image>",
    "tile": "<fake_token_around_image><row_{row}_col_{column}>",
    "row_end": "\n",
    "whole": "\n<fake_token_around_image><global-img>",
    "only": "<fake_token_around_image><global-img>",
    "end": "<fake_token_around_image>",
}
RECORDS = {
    "clip": {"size": {"shortest_edge": {"edge": 224, "crop_width": 224, "crop_height": 224}}, "filter": "bicubic", "values": CLIP, "patch": 32,
             "layout": "planes"},
    "siglip": {"size": {"fixed": {"width": 224, "height": 224}}, "filter": "bicubic", "values": HALF, "patch": 16, "layout": "planes"},
    "paligemma": {"size": {"fixed": {"width": 224, "height": 224}}, "filter": "bicubic", "values": HALF, "patch": 14, "layout": "planes",
                  "marks": {"token": "<image>"}},
    "gemma3": {"size": {"fixed": {"width": 896, "height": 896}}, "filter": "bilinear", "values": HALF, "patch": 14, "merge": 4, "layout": "planes",
               "marks": {"token": "<image_soft_token>", "start": "\n\n<start_of_image>", "end": "<end_of_image>\n\n"}},
    "gemma3n": {"size": {"fixed": {"width": 768, "height": 768}}, "filter": "bilinear", "values": {"scale": 1 / 255}, "patch": 48,
                "layout": "planes",
                "marks": {"token": "<image_soft_token>", "start": "\n\n<start_of_image>", "end": "<end_of_image>\n\n"}},
    "gemma4": {"size": {"budget": {"tokens": 280, "choices": [70, 140, 280, 560, 1120]}}, "filter": "bicubic", "values": {"scale": 1 / 255},
               "patch": 16, "merge": 3, "layout": LAST, "marks": {"token": "<|image|>", "start": "<|image>", "end": "<image|>"}},
    "qwen3_vl": {"size": {"bounds": {"min_pixels": 65536, "max_pixels": 16777216, "max_ratio": 200}}, "filter": "bicubic", "values": HALF,
                 "patch": 16, "merge": 2, "layout": {"patches": {"order": "blocks", "channels": "first", "copies": 2}},
                 "marks": {"token": "<|image_pad|>", "start": "<|vision_start|>", "end": "<|vision_end|>"}},
    "lfm2_vl": {"size": {"tiles": {"tile": 512, "min_tiles": 2, "max_tiles": 10, "min_tokens": 64, "max_tokens": 256, "tolerance": 2.0,
                                   "thumbnail": True}},
                "filter": "bilinear", "values": HALF, "patch": 16, "merge": 2, "layout": LAST,
                "marks": {"token": "<image>", "start": "<|image_start|>", "end": "<|image_end|>", "tile": "<|img_row_{row}_col_{column}|>",
                          "whole": "<|img_thumbnail|>"}},
    "smolvlm2_500m": {"size": {"long_side": {"side": 2048, "tile": 512}}, "filter": "lanczos", "values": HALF, "patch": 16, "merge": 4,
                      "layout": "planes", "marks": SMOL},
    "smolvlm_2b": {"size": {"long_side": {"side": 1536, "tile": 384}}, "filter": "lanczos", "values": HALF, "patch": 14, "merge": 3,
                   "layout": "planes", "marks": SMOL},
}
SIZES = [
    (512, 512), (1024, 768), (1920, 1080), (1, 1), (64, 48), (48, 64), (333, 777), (2000, 20), (20, 2000), (100, 1), (199, 1), (1, 199), (3, 500),
    (16, 48), (48, 80), (1000, 1400), (3024, 4032), (4032, 3024), (5000, 700), (256, 4000), (725, 724), (724, 725), (768, 1024), (1536, 512),
    (511, 513), (1280, 800), (2560, 1440), (640, 360), (360, 641), (1112, 96),
]
PIXELS = [(64, 48), (37, 91), (200, 33), (1, 1), (5, 700)]
LARGE = {"lfm2_vl": [(900, 700)]}


class References:
    """The processors of transformers by the name of the record."""

    def __init__(self):
        import numpy
        import torch
        from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
        from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
        from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
        from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
        from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
        from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
        from transformers.image_processing_backends import TorchvisionBackend

        def by_pillow(self, image, size, resample=None, **_):
            rows = [Image.fromarray(one.permute(1, 2, 0).numpy()).resize((size.width, size.height), resample) for one in image]
            return torch.stack([torch.from_numpy(numpy.array(row)).permute(2, 0, 1) for row in rows])

        def by_numpy(self, images, do_rescale, rescale_factor, do_normalize, mean, std):
            scaled = (images.numpy().astype(numpy.float64) * rescale_factor).astype(numpy.float32)
            shape = (3, 1, 1)
            made = (scaled - numpy.array(mean, numpy.float32).reshape(shape)) / numpy.array(std, numpy.float32).reshape(shape)
            return torch.from_numpy(made)

        TorchvisionBackend.resize = by_pillow
        TorchvisionBackend.rescale_and_normalize = by_numpy
        square = lambda side: {"height": side, "width": side}
        half = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
        self.numpy = numpy
        self.all = {
            "clip": CLIPImageProcessorPil(),
            "siglip": SiglipImageProcessorPil(size=square(224)),
            "paligemma": SiglipImageProcessorPil(size=square(224)),
            "gemma3": Gemma3ImageProcessorPil(size=square(896)),
            "gemma3n": SiglipImageProcessorPil(size=square(768), resample=Image.BILINEAR, do_normalize=False),
            "gemma4": Gemma4ImageProcessorPil(),
            "qwen3_vl": Qwen2VLImageProcessorPil(patch_size=16, size={"shortest_edge": 65536, "longest_edge": 16777216}, **half),
            "lfm2_vl": Lfm2VlImageProcessor(resample=Image.BILINEAR, do_pad=False, return_row_col_info=True),
            "smolvlm2_500m": SmolVLMImageProcessorPil(size={"longest_edge": 2048}, max_image_size={"longest_edge": 512}, return_row_col_info=True),
            "smolvlm_2b": SmolVLMImageProcessorPil(size={"longest_edge": 1536}, max_image_size={"longest_edge": 384}, return_row_col_info=True),
        }

    def process(self, name, image):
        """Values as rows of what belongs to a patch or a view, grids of the views, positions."""
        numpy, record = self.numpy, RECORDS[name]
        made = self.all[name](image, return_tensors=None if name.startswith("smol") else "np")
        values = numpy.asarray(made["pixel_values"], dtype=numpy.float32)
        positions = None
        if name == "gemma4":
            positions = made["image_position_ids"][0]
            real = positions[:, 0] >= 0
            values, positions = values[0][real], positions[real]
            grids = [[int(positions[:, 1].max()) + 1, int(positions[:, 0].max()) + 1]]
            assert int(made["num_soft_tokens_per_image"][0]) * 9 == len(values)
        elif name == "qwen3_vl":
            grids = made["image_grid_thw"][:, 1:].tolist()
        elif name == "lfm2_vl":
            raise AssertionError("see lfm2_vl")
        else:
            values = values.reshape(-1, *values.shape[-3:])
            patch = record["patch"]
            grids = [[values.shape[2] // patch, values.shape[3] // patch]] * len(values)
        return values, grids, positions

    def lfm2_vl(self, image):
        """Tile by tile, as `_preprocess` does, which would fill all up to one length."""
        import torch
        from transformers.models.lfm2_vl.image_processing_lfm2_vl import convert_image_to_patches

        numpy, processor = self.numpy, self.all["lfm2_vl"]
        pixels = torch.from_numpy(numpy.array(image)).permute(2, 0, 1)[None]
        names = ["downsample_factor", "min_tiles", "max_tiles", "use_thumbnail", "min_image_tokens", "max_image_tokens", "encoder_patch_size",
                 "tile_size", "max_pixels_tolerance", "resample"]
        views, rows, columns, sizes = processor.resize_and_split(pixels, **{name: getattr(processor, name) for name in names})
        values, grids = [], []
        for view in views[0]:
            view = view.reshape(1, *view.shape[-3:])
            scaled = processor.rescale_and_normalize(view, True, 1 / 255, True, [0.5] * 3, [0.5] * 3)
            values.append(convert_image_to_patches(scaled, 16)[0].numpy())
            grids.append([view.shape[-2] // 16, view.shape[-1] // 16])
        return numpy.concatenate(values), grids, (int(rows[0]), int(columns[0]), sizes[0])


def grid_of(refs, name, width, height):
    """Grids of the views and the text of the picture, without pixels; `None` where the reference refuses."""
    from transformers.models.gemma4.image_processing_pil_gemma4 import get_aspect_ratio_preserving_size
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    record = RECORDS[name]
    patch, marks = record["patch"], record.get("marks")
    tiles = None
    try:
        if name == "gemma4":
            high, wide = get_aspect_ratio_preserving_size(height, width, 16, 280 * 9, 3)
            sizes = [(high, wide)]
        elif name == "qwen3_vl":
            sizes = [smart_resize(height, width, 32, 65536, 16777216)]
        elif name == "lfm2_vl":
            processor = refs.all[name]
            grid_names = ["downsample_factor", "min_image_tokens", "max_image_tokens", "encoder_patch_size"]
            options = {key: getattr(processor, key) for key in grid_names}
            wide, high = processor.smart_resize(height=height, width=width, **options)
            large_options = {key: options[key] for key in ["downsample_factor", "max_image_tokens", "encoder_patch_size"]}
            if processor._is_image_too_large(height=height, width=width, max_pixels_tolerance=2.0, **large_options):
                columns, rows, *_ = processor._get_grid_layout(height, width, 2, 10, 512)
                sizes, tiles = [(512, 512)] * (rows * columns) + [(high, wide)], (rows, columns)
            else:
                sizes = [(high, wide)]
        elif name.startswith("smol"):
            processor = refs.all[name]
            tile = record["size"]["long_side"]["tile"]

            class Shape:
                def __init__(self, shape):
                    self.shape = shape

            from transformers.models.smolvlm import image_processing_pil_smolvlm as smol

            first = smol.get_resize_output_image_size(Shape((3, height, width)), record["size"]["long_side"]["side"])
            class Recorder(type(processor)):
                def resize(self, image, size, resample=None, **_):
                    return Shape((3, size.height, size.width))

            whole = Recorder.resize_for_vision_encoder(Recorder(), Shape((3, *first)), tile).shape
            rows, columns = whole[1] // tile, whole[2] // tile
            assert rows * columns > 1
            sizes, tiles = [(tile, tile)] * (rows * columns + 1), (rows, columns)
        elif name == "clip":
            sizes = [(224, 224)]
        else:
            fixed = record["size"]["fixed"]
            sizes = [(fixed["height"], fixed["width"])]
    except ValueError:
        return None
    merge = record.get("merge", 1)
    grids = [[high // patch, wide // patch] for high, wide in sizes]
    tokens = [(rows // merge) * (columns // merge) for rows, columns in grids]
    made = {"grids": grids, "tokens": sum(tokens)}
    if marks:
        made["text"] = digest(text_of(name, marks, tokens, tiles).encode())
    return made


def text_of(name, marks, tokens, tiles):
    if name == "lfm2_vl":
        from transformers.models.lfm2_vl.processing_lfm2_vl import Lfm2VlProcessor

        processor = Lfm2VlProcessor.__new__(Lfm2VlProcessor)
        processor.image_token, processor.image_start_token, processor.image_end_token = "<image>", "<|image_start|>", "<|image_end|>"
        processor.image_thumbnail_token = "<|img_thumbnail|>"
        rows, columns = tiles or (1, 1)
        return processor._build_image_tokens(rows, columns, 256, tokens[-1], True, True)
    if name.startswith("smol"):
        from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

        return get_image_prompt_string(*tiles, tokens[0], "<fake_token_around_image>", "<image>", "<global-img>")
    return marks.get("start", "") + marks["token"] * tokens[0] + marks.get("end", "")


def write_records():
    refs = References()
    numpy = refs.numpy
    written = {}
    for name, record in RECORDS.items():
        cases = []
        for seed, (width, height) in enumerate(PIXELS + LARGE.get(name, [])):
            image = picture(width, height, seed)
            positions = None
            try:
                if name == "lfm2_vl":
                    values, grids, _ = refs.lfm2_vl(image)
                else:
                    values, grids, positions = refs.process(name, image)
            except ValueError:
                continue
            values = numpy.ascontiguousarray(values, dtype="<f4")
            flat = values.reshape(-1)
            rng = random.Random(seed)
            at = sorted(rng.randrange(len(flat)) for _ in range(12))
            case = {"picture": [width, height, seed], "shape": list(values.shape), "grids": grids, "digest": digest(flat.tobytes()), "at": at,
                    "values": [float(flat[i]) for i in at]}
            if positions is not None:
                case["positions"] = digest(numpy.ascontiguousarray(positions, dtype="<u4").tobytes())
            cases.append(case)
        plans = [{"size": [w, h], "plan": grid_of(refs, name, w, h)} for w, h in SIZES]
        written[name] = {"record": {"version": 1, **record}, "cases": cases, "plans": plans}
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in written.items())
    (OUT / "records.json").write_text(f"{{\n{text}\n}}\n")


def answer():
    for line in sys.stdin:
        print(resized(json.loads(line)), flush=True)


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    what = sys.argv[1] if len(sys.argv) > 1 else "files"
    if what == "answer":
        answer()
    elif what == "records":
        write_records()
    else:
        write_resize()
        write_files()
