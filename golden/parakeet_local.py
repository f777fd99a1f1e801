"""Write what the tiny golden models of Parakeet give with local attention: full attention under a mask that leaves a band, as NeMo's
`rel_pos_local_attn` is defined.

For every case of `parakeet_models.py` this writes `speech/<case>/local.safetensors`: for each context of CONTEXTS `states.CONTEXT`
`[positions, width]`, what the encoder gives of `features.38400` of `expected.safetensors` where each position sees so many on each side.

Run after parakeet_models.py: python golden/parakeet_local.py
"""

import torch
from parakeet_models import BEGINNINGS, CASES
from safetensors.torch import load_file, save_file
from speech_models import OUT

CONTEXTS = [2, 3, 8]


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    for name, case in CASES.items():
        folder = OUT / name
        model = case["kind"][1].from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        expected = load_file(folder / "expected.safetensors")
        features = expected[f"features.{BEGINNINGS[0]}"][None]
        encoder = model.encoder
        tensors = {}
        for context in [10_000, *CONTEXTS]:

            def band(module, args, kwargs):
                place = torch.arange(kwargs["hidden_states"].shape[1])
                seen = (place[:, None] - place[None, :]).abs() <= context
                return args, {**kwargs, "attention_mask": seen[None, None]}

            hooks = [layer.self_attn.register_forward_pre_hook(band, with_kwargs=True) for layer in encoder.layers]
            states = encoder(features).last_hidden_state
            head = model.ctc_head if hasattr(model, "ctc_head") else model.encoder_projector
            states = head(states)
            for hook in hooks:
                hook.remove()
            if context in CONTEXTS:
                tensors[f"states.{context}"] = states[0].contiguous()
            else:
                # A band that leaves everything changes nothing.
                whole = expected[f"states.{BEGINNINGS[0]}"]
                assert (states[0] - whole).abs().max() < 1e-4, (states[0] - whole).abs().max()
        save_file(tensors, folder / "local.safetensors")
        print(name, {k: list(v.shape) for k, v in tensors.items()})


if __name__ == "__main__":
    main()
