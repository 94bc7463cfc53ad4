"""How the torch_*.py scripts of this folder write tensors and losses.

Numbers are the shortest decimal ones that name the float32. A tensor is
{"shape": [...], "values": [...]}, row by row; where only a summary is written it
is {"shape", "first", "last", "sum", "abs_sum"}: 8 values from each end, and the
sums of all values and of their absolute values in float64.
"""
import json

import numpy
import torch

torch.set_num_threads(1)


def short(v):
    return float(str(numpy.float32(v)))


def tensor(t):
    t = t.detach()
    flat = t.reshape(-1).tolist()
    return {"shape": list(t.shape), "values": [short(v) for v in flat] if t.is_floating_point() else flat}


def summary(t):
    flat = t.detach().reshape(-1)
    wide = flat.double()
    return {"shape": list(t.shape), "first": [short(v) for v in flat[:8].tolist()],
            "last": [short(v) for v in flat[-8:].tolist()],
            "sum": wide.sum().item(), "abs_sum": wide.abs().sum().item()}


def named(pairs, form):
    """The list of tensors in the order given, each with its name."""
    return [dict(name=name, **form(t)) for name, t in pairs]


def dumps(value):
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def write(fields):
    """Prints an object, one line for each field and for each case of a list of cases."""
    lines = []
    for key, value in fields.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            text = "[\n" + ",\n".join(" " + dumps(v) for v in value) + "\n]"
        else:
            text = dumps(value)
        lines.append(json.dumps(key) + ":" + text)
    print("{\n" + ",\n".join(lines) + "\n}")
