package main

import (
	"slices"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// saveAlphabet implements the script command "alphabet DIR STEP [FILE]". It saves a checkpoint
// of a GPT that continues each character of the file with the next one by code point. The
// first character follows the last one. Without a file, the model has 5 tokens. With "byte"
// instead of a file, the tokens are the 256 bytes.
func saveAlphabet(ts *testscript.TestScript, neg bool, args []string) {
	step, err := strconv.Atoi(args[1])
	ts.Check(err)
	tokens := 5
	m := &checkpoint.Manifest{Run: "r", Step: step}
	switch {
	case len(args) < 3:
	case args[2] == "byte":
		tokens, m.Vocabulary = 256, "byte"
	default:
		chars := []rune(ts.ReadFile(args[2]))
		slices.Sort(chars)
		chars = slices.Compact(chars)
		tokens, m.Vocabulary = len(chars), "char:"+string(chars)
	}
	d := cpu.New(1)
	gpt := alphabet(d, tokens)
	_, err = checkpoint.Save(ts.MkAbs(args[0]), m, checkpoint.Files{checkpoint.ModelFile: nn.Tensors(d, gpt.Params()), checkpoint.OptimizerFile: nil})
	ts.Check(err)
}

// alphabet returns a model without attention. Its MLP detects the current token, which is the
// largest value of the row, and increases the value of the next token.
func alphabet(d device.Device, tokens int) *nn.GPT {
	m, err := nn.NewGPT(nn.GPTOptions{Vocabulary: tokens, Context: 8, Layers: 1, Heads: 1, Width: tokens})
	if err != nil {
		panic(err)
	}
	nn.AllocValues(d, m.Params())
	for _, p := range m.Params() {
		device.Fill(d, p.Data, func(v []float32) {
			width := p.Shape[len(p.Shape)-1]
			for i := range tokens {
				switch p.Name {
				case "wte.weight":
					v[i*width+i] = 10
				case "h.0.ln_2.weight", "ln_f.weight":
					v[i] = 1
				case "h.0.mlp.c_fc.weight":
					v[i*width+i] = 5
				case "h.0.mlp.c_fc.bias":
					v[i] = -3
				case "h.0.mlp.c_proj.weight":
					v[i*width+(i+1)%tokens] = 10
				}
			}
		})
	}
	return m
}
