"""Prints as JSON what torch.load makes of a file: names, shapes, sums, and the values
of small tensors."""
import json
import sys

import torch

state = torch.load(sys.argv[1], weights_only=True)
out = []
for name, t in state.items():
    assert t.dtype == torch.float32 and t.device.type == "cpu" and not t.requires_grad and t.is_contiguous()
    out.append({"name": name, "shape": list(t.shape), "values": [float(v) for v in t.flatten()[:8]], "last": float(t.flatten()[-1]) if t.numel() else 0.0})
json.dump({"type": type(state).__name__, "tensors": out}, sys.stdout)
