"""Writes halves.json: numbers of 16 bits and the float32 that PyTorch makes of them."""

import json
import pathlib

import torch

golden = {}
for name, dtype in (("F16", torch.float16), ("BF16", torch.bfloat16)):
    bits = torch.arange(256, dtype=torch.int32) * 257 % 65536
    if name == "F16":  # more that are subnormal, and the ends of the exponents
        bits[:8] = torch.tensor([0, 0x8000, 1, 0x3FF, 0x400, 0x7BFF, 0x7C00, 0xFC00])
    values = bits.to(torch.int16).view(dtype).float()
    golden[name] = {
        "bits": bits.tolist(),
        "float32": [v & 0xFFFFFFFF for v in values.view(torch.int32).tolist()],
    }
out = pathlib.Path(__file__).with_name("halves.json")
out.write_text(json.dumps(golden) + "\n")
