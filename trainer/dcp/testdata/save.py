"""Write a distributed checkpoint of PyTorch with two ranks, and what PyTorch reads from it.

    python3 save.py DIRECTORY [PREFIX]

The checkpoint has tensors of each kind that jobs save: sharded by FSDP, by tensor parallelism,
replicated, and plain; optimizer states; and values that are not tensors. PREFIX.zip contains its
files. PREFIX.json contains the tensors that dcp_to_torch_save writes, with dtype, shape, and bytes,
and the other values. The files in this directory were written on Debian 13, with PyTorch 2.6:

    tests/debian13.sh python3 $PWD/trainer/dcp/testdata/save.py /tmp/checkpoint $PWD/trainer/dcp/testdata/checkpoint
"""
import json
import os
import sys
import tempfile
import zipfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed._shard import sharded_tensor
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

RANKS = 2


def values(shape, dtype=torch.float32):
    """Return a tensor with different values."""
    n = torch.Size(shape).numel()
    return (torch.arange(n, dtype=torch.float32) * 0.37 - 1.5).reshape(shape).to(dtype)


def state(rank):
    """Return the state that a rank saves."""
    mesh = init_device_mesh("cpu", (RANKS,))
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 1))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for p in model.parameters():
        p.grad = torch.full_like(p, 0.25)
    optimizer.step()
    weights, moments = get_state_dict(model, optimizer)
    rows = [3, 2][rank]
    shard = sharded_tensor.Shard.from_tensor_and_offsets(values((5, 2))[3 * rank:3 * rank + rows].clone(), [3 * rank, 0], rank)
    weights |= {
        "columns": distribute_tensor(values((4, 6), torch.bfloat16), mesh, [Shard(1)]),
        "replicated": distribute_tensor(values((3,), torch.float16), mesh, [Replicate()]),
        "fsdp1": sharded_tensor.init_from_local_shards([shard], 5, 2),
        "transposed": values((3, 4), torch.float64).t(),
        "part": values((4, 4))[1:3, 1:3],
        "mask": torch.tensor([True, False, True]),
        "steps": torch.tensor(7),
        "bytes": torch.arange(5, dtype=torch.uint8),
        "small": values((2, 2), torch.float8_e4m3fn),
        "none": torch.zeros(0, 4),
        "größe": values((2,), torch.int32),
    }
    return {
        "model": weights,
        "optimizer": moments,
        "train": {"epoch": 3, "name": "größe", "best": None, "losses": [0.5, 0.25, True], "seed": 1 << 40, "raw": b"\x00\xff",
                  "versions": [torch.ones(1), {"a": -1}], "offset": -(1 << 33)},
    }


def run(rank, directory, store):
    """Save as one rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=RANKS)
    dcp.save(state(rank), checkpoint_id=directory)
    dist.destroy_process_group()


def leaves(path, value, found):
    """Collect the values below a value."""
    if isinstance(value, dict):
        for k, v in value.items():
            leaves([*path, k], v, found)
    elif isinstance(value, list) and any(isinstance(v, (dict, torch.Tensor)) for v in value):
        for i, v in enumerate(value):
            leaves([*path, i], v, found)
    elif isinstance(value, torch.Tensor):
        raw = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
        found.append({"path": path, "dtype": str(value.dtype), "shape": list(value.shape), "hex": raw.hex()})
    else:
        found.append({"path": path, "value": repr(value)})


def main():
    directory = sys.argv[1]
    with tempfile.TemporaryDirectory() as temporary:
        mp.start_processes(run, (directory, os.path.join(temporary, "store")), RANKS, start_method="fork")
    if len(sys.argv) > 2:
        with tempfile.NamedTemporaryFile(suffix=".pt") as whole:
            dcp_to_torch_save(directory, whole.name)
            found = []
            leaves([], torch.load(whole.name, weights_only=False), found)
        with open(sys.argv[2] + ".json", "w") as f:
            f.write("[\n" + ",\n".join(json.dumps(v, ensure_ascii=False) for v in found) + "\n]\n")
        with zipfile.ZipFile(sys.argv[2] + ".zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
            for name in sorted(os.listdir(directory)):
                z.write(os.path.join(directory, name), name)


if __name__ == "__main__":
    main()
