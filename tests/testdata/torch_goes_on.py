"""Goes on in PyTorch from the weights and the optimizer's state that ddpbatch checkpoint
export wrote, for one step on all samples of a table, and compares with the weights that
ddpbatch had after that step."""

import pickletools
import sys
import zipfile

import torch


def one_step(kind, folder):
    model = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    model.load_state_dict(torch.load(f"{folder}/model.pt", weights_only=True))
    # Not the settings of the run: the exported file overrides them.
    rule, _, groups = kind.partition("-")
    params = model.parameters()
    if groups:  # as in nanoGPT: with and without weight decay
        params = [{"params": [p for p in model.parameters() if (p.dim() >= 2) == decays]} for decays in (True, False)]
    optimizer = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[rule](params, lr=1.0)
    # With weights_only=True, PyTorch 1.13 cannot read a float (PyTorch issue 94670), so it cannot
    # read the state of an optimizer. Later versions read everything in this file.
    state = torch.load(f"{folder}/optimizer.pt", weights_only=not torch.__version__.startswith("1."))
    with zipfile.ZipFile(f"{folder}/optimizer.pt") as z:
        for operation, argument, _ in pickletools.genops(z.read("archive/data.pkl")):
            assert operation.name in {"PROTO", "EMPTY_DICT", "EMPTY_LIST", "MARK", "BINUNICODE", "BININT", "BINFLOAT", "NEWTRUE", "NEWFALSE",
                                      "GLOBAL", "EMPTY_TUPLE", "TUPLE", "REDUCE", "BINPERSID", "SETITEMS", "APPENDS", "STOP"}, operation.name
            assert operation.name != "GLOBAL" or argument in {"torch._utils _rebuild_tensor_v2", "torch FloatStorage", "collections OrderedDict"}, argument
    names = [name for name, _ in model.named_parameters()]
    if groups:
        weights, biases = ([n for n in names if n.endswith(end)] for end in ("weight", "bias"))
        assert [g["param_names"] for g in state["param_groups"]] == [weights, biases], state["param_groups"]
        assert state["param_groups"][0]["weight_decay"] > 0 and state["param_groups"][1]["weight_decay"] == 0, state["param_groups"]
    else:
        assert [g["param_names"] for g in state["param_groups"]] == [names], state["param_groups"]
    optimizer.load_state_dict(state)

    with open(f"{folder}/data.csv", encoding="utf-8") as f:
        rows = [[float(v) for v in line.split(",")] for line in f.readlines()[1:]]
    table = torch.tensor(rows)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(table[:, :1]), table[:, 1:]).backward()
    optimizer.step()

    after = torch.load(f"{folder}/after.pt", weights_only=True)
    for name, value in model.state_dict().items():
        assert torch.allclose(value, after[name], rtol=1e-5, atol=1e-7), (name, value, after[name])
    before = torch.load(f"{folder}/model.pt", weights_only=True)
    assert any(not torch.allclose(before[n], after[n], rtol=1e-4, atol=1e-6) for n in names), "the step changed nothing"
    print(f"{kind}: one step, the same weights")


torch.set_num_threads(1)
for kind, folder in zip(sys.argv[1::2], sys.argv[2::2]):
    one_step(kind, folder)
