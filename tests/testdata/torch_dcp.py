"""Compare exported files of a distributed checkpoint with the file that PyTorch writes.

    python3 torch_dcp.py CHECKPOINT FILE.pt FILE.safetensors
"""
import json
import struct
import sys

import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save


def raw(tensor):
    """Return the bytes of a tensor."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def compare(path, ours, theirs):
    """Compare two values."""
    assert type(ours) is type(theirs), f"{path}: {type(ours)} and {type(theirs)}"
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), f"{path}: {list(ours)} and {list(theirs)}"
        for k in theirs:
            compare([*path, k], ours[k], theirs[k])
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), f"{path}: {ours} and {theirs}"
        for i, v in enumerate(theirs):
            compare([*path, i], ours[i], v)
    elif isinstance(theirs, torch.Tensor):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and raw(ours) == raw(theirs), f"{path}: {ours} and {theirs}"
    else:
        assert ours == theirs, f"{path}: {ours} and {theirs}"


def tensors(path, value):
    """Yield the tensors below a value, with their names."""
    if isinstance(value, torch.Tensor):
        yield ".".join(map(str, path)), value
    elif isinstance(value, (dict, list)):
        for k, v in value.items() if isinstance(value, dict) else enumerate(value):
            yield from tensors([*path, k], v)


def main():
    checkpoint, ours, safetensors = sys.argv[1:]
    dcp_to_torch_save(checkpoint, "theirs.pt")
    theirs = torch.load("theirs.pt", weights_only=False)
    compare([], torch.load(ours, weights_only=True), theirs)
    with open(safetensors, "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(size))
        data = f.read()
    header.pop("__metadata__")
    count = 0
    for name, tensor in tensors([], theirs):
        entry = header.pop(name)
        begin, end = entry["data_offsets"]
        assert entry["shape"] == list(tensor.shape) and data[begin:end] == raw(tensor), f"{name}: {entry}"
        count += 1
    assert not header, f"more tensors than PyTorch: {list(header)}"
    print(f"{count} tensors, bit for bit")


if __name__ == "__main__":
    main()
