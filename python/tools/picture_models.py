"""Models of pictures from timm and torchvision: names, and how one is made and called.

Purpose: what the sweep's groups `timm` and `torchvision` take. From timm one of the smallest models of each of its modules, and a
second one where a module has more than twelve; from torchvision one of each kind, for pictures, masks and films. What finds
objects is left out, as how many it finds depends on the picture. It imports neither library until a model is asked for.
"""

import re

import torch
from cactus.transpile.model_adapters import Calls, Component
from zoo import randomized

#: Words in the names of small models, the smallest first.
SMALL = [
    re.compile(pattern)
    for pattern in (
        r"atto|femto|nano|pico",
        r"xxs|xx_small|xxsmall|mini|micro|lite0|_b0|_050|_s0|_t0|_n\b",
        r"tiny|_xs|_x_small|_ti_|_t_|18\b|_18|_s\b|small|_a0|_26",
    )
]
#: Modules of timm with more models than this give two.
MANY = 12

TORCHVISION = """
    alexnet convnext_tiny deeplabv3_mobilenet_v3_large deeplabv3_resnet50 densenet121 efficientnet_b0 efficientnet_v2_s fcn_resnet50
    googlenet inception_v3 lraspp_mobilenet_v3_large maxvit_t mc3_18 mnasnet0_5 mobilenet_v2 mobilenet_v3_small mvit_v1_b mvit_v2_s
    r2plus1d_18 r3d_18 raft_small regnet_x_400mf regnet_y_400mf resnet18 resnet50 resnext50_32x4d s3d shufflenet_v2_x0_5 squeezenet1_0
    squeezenet1_1 swin3d_t swin_t swin_v2_t vgg11 vgg11_bn vit_b_32 wide_resnet50_2
""".split()
#: Models of films take so many frames.
FRAMES = {"swin3d_t": 8, "mvit_v1_b": 16, "mvit_v2_s": 16, "s3d": 16, "mc3_18": 8, "r2plus1d_18": 8, "r3d_18": 8}
#: Models that accept small pictures are given small ones: what is computed is the same, and a sweep takes less long.
SIDES = (64, 96, 128, 224)


def small_first(name: str) -> tuple:
    rank = next((i for i, words in enumerate(SMALL) if words.search(name)), len(SMALL))
    return rank, len(name), name


def timm_names() -> list[str]:
    import timm
    from timm.models import _registry

    modules: dict[str, list[str]] = {}
    for name in timm.list_models():
        if not name.startswith("test_"):
            modules.setdefault(_registry._model_to_module[name], []).append(name)
    chosen = [sorted(names, key=small_first)[: 2 if len(names) > MANY else 1] for names in modules.values()]
    return sorted(name for names in chosen for name in names)


def first_output(model, x):
    """The scores of a classifier, or the first of what a model gives."""
    y = model(x)
    if isinstance(y, dict):
        y = y["out"]
    return y if isinstance(y, torch.Tensor) else y[-1]


def called(model, shapes: list[tuple[int, ...]]) -> tuple:
    """The model with the first of several inputs that it takes."""
    error = None
    generator = torch.Generator().manual_seed(1)
    for shape in shapes:
        x = torch.randn(shape, generator=generator)
        component = Component("model", Calls(model, lambda m, x: first_output(m, x)), {"x": x})
        try:
            with torch.no_grad():
                first_output(model, x)
        except Exception as e:
            error = e
            continue
        return [component], "function"
    raise error


def made(make) -> torch.nn.Module:
    torch.manual_seed(0)
    return randomized(make()).eval()


def of_timm(name: str) -> tuple:
    try:
        import timm

        model = made(lambda: timm.create_model(name))
        size = model.pretrained_cfg.get("input_size", (3, 224, 224))
        sides = [] if model.pretrained_cfg.get("fixed_input_size") else [s for s in SIDES if s < size[1]]
        shapes = [(1, 3, s, s) for s in sides] + [(1, *size)]
        return {"class": type(model).__name__, "type": name}, *called(model, shapes)
    except Exception as e:
        return {"unbuilt": f"{type(e).__name__}: {e}"}, None, None


def of_torchvision(name: str) -> tuple:
    try:
        import torchvision

        more = {"weights_backbone": None} if re.search("deeplab|fcn|lraspp", name) else {}
        model = made(lambda: torchvision.models.get_model(name, weights=None, **more))
        about = {"class": type(model).__name__, "type": name}
        if name in FRAMES:
            return about, *called(model, [(1, 3, FRAMES[name], s, s) for s in (64, 112, 224)])
        if name.startswith("raft"):
            return about, *two_pictures(model)
        sides = [s for s in SIDES if s < 224] + [224, 299]
        return about, *called(model, [(1, 3, s, s) for s in sides])
    except Exception as e:
        return {"unbuilt": f"{type(e).__name__}: {e}"}, None, None


def two_pictures(model) -> tuple:
    """Optical flow from one picture to the next."""
    generator = torch.Generator().manual_seed(1)
    inputs = {name: torch.randn(1, 3, 128, 128, generator=generator) for name in ("first", "second")}
    flow = Calls(model, lambda m, first, second: m(first, second, num_flow_updates=2)[-1])
    return [Component("model", flow, inputs)], "function"
