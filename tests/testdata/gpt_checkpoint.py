"""Loads the weights of a GPT that ddpbatch trained on a text into PyTorch, and prints as
JSON the loss on the held-out end of the text and a greedy continuation of a prompt. Then it changes
the weights by one step of AdamW, writes them for ddpbatch, and prints their loss, too."""

import argparse
import json
import os
import struct
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../trainer/nn/testdata"))
from torch_gpt import GPT, generate  # noqa: E402


def safetensors(path):
    """The tensors of a safetensors file of float32."""
    with open(path, "rb") as f:
        content = f.read()
    (size,) = struct.unpack("<Q", content[:8])
    data = content[8 + size:]
    out = {}
    for name, entry in json.loads(content[8:8 + size]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32", entry
        first, end = entry["data_offsets"]
        out[name] = torch.frombuffer(bytearray(data[first:end]), dtype=torch.float32).view(entry["shape"])
    return out


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        content = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


parser = argparse.ArgumentParser()
parser.add_argument("--weights", required=True)
parser.add_argument("--state-dict", required=True, help="the same weights as ddpbatch checkpoint export wrote them")
parser.add_argument("--optimizer", required=True, help="the state of the optimizer as it wrote that")
parser.add_argument("--write", required=True, help="safetensors file for the weights after one step")
parser.add_argument("--text", required=True)
parser.add_argument("--heads", type=int, required=True)
parser.add_argument("--holdout", type=float, required=True)
parser.add_argument("--prompt", required=True)
parser.add_argument("--tokens", type=int, required=True)
options = parser.parse_args()
torch.set_num_threads(1)

weights = safetensors(options.weights)
exported = torch.load(options.state_dict, weights_only=True)
assert list(exported) == list(weights) and all(torch.equal(exported[n], weights[n]) for n in weights)
(vocabulary, width), context = weights["wte.weight"].shape, len(weights["wpe.weight"])
layers = sum(name.endswith("ln_1.weight") for name in weights)
model = GPT(vocabulary, context, width, options.heads, layers, seed=0)
missing, unexpected = model.load_state_dict(weights, strict=False)
assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
state = torch.load(options.optimizer, weights_only=not torch.__version__.startswith("1."))  # PyTorch 1.13 cannot
# Only matrices decay, so PyTorch's optimizer has a second group for the other parameters.
groups = [[(n, p) for n, p in model.named_parameters() if (p.dim() >= 2) == decays] for decays in (True, False)]
assert [g["param_names"] for g in state["param_groups"]] == [[n for n, _ in g] for g in groups], state["param_groups"]
assert [g["weight_decay"] > 0 for g in state["param_groups"]] == [True, False], state["param_groups"]
optimizer = torch.optim.AdamW([{"params": [p for _, p in g]} for g in groups])
optimizer.load_state_dict(state)
assert all(state["state"][i]["exp_avg"].shape == p.shape for i, (_, p) in enumerate(groups[0] + groups[1]))

with open(options.text, encoding="utf-8") as f:
    text = f.read()
alphabet = sorted(set(text))
tokens = torch.tensor([alphabet.index(c) for c in text])
held_out = tokens[int(len(tokens) * (1 - options.holdout)):]
samples = (len(held_out) - 1) // context
x = held_out[:samples * context].view(samples, context)
y = held_out[1:samples * context + 1].view(samples, context)
with torch.no_grad():
    loss = model.loss(x, y).item()
    more = generate(model, [alphabet.index(c) for c in options.prompt], options.tokens)
model.loss(x, y).backward()
optimizer.step()
with torch.no_grad():
    after = model.loss(x, y).item()
write_safetensors(options.write, {n: dict(model.named_parameters())[n] for n in weights})
print(json.dumps({"loss": loss, "after": after, "text": "".join(alphabet[t] for t in more["tokens"])}))
