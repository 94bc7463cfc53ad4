package torchstate

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
	"github.com/ddpbatch/ddpbatch/trainer/torchfile"
	"github.com/ddpbatch/ddpbatch/trainer/unpickle"
)

// snapshot returns a checkpoint of a layer with the given tensors of its optimizer.
func snapshot(t *testing.T, initialized bool, state ...string) *checkpoint.Snapshot {
	t.Helper()
	s := &checkpoint.Snapshot{Manifest: checkpoint.Manifest{OptimInit: initialized}, Files: map[string]*io.SectionReader{}}
	optimizer := []safetensors.Tensor{}
	for i, name := range state {
		optimizer = append(optimizer, safetensors.Tensor{Name: name, Shape: []int{}, Data: []float32{float32(i)}})
	}
	for file, tensors := range map[string][]safetensors.Tensor{
		checkpoint.ModelFile:     {{Name: "0.bias", Shape: []int{1}, Data: []float32{5}}, {Name: "0.weight", Shape: []int{1, 1}, Data: []float32{6}}},
		checkpoint.OptimizerFile: optimizer,
	} {
		var b bytes.Buffer
		if err := safetensors.Write(&b, tensors, nil); err != nil {
			t.Fatal(err)
		}
		s.Files[file] = io.NewSectionReader(bytes.NewReader(b.Bytes()), 0, int64(b.Len()))
	}
	return s
}

// read returns the pickle of a file of PyTorch as Python would print it. A tensor is the number of its
// entry in the file, with its first byte.
func read(t *testing.T, file []byte) string {
	t.Helper()
	archive, err := zip.NewReader(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := archive.Open("archive/data.pkl")
	if err != nil {
		t.Fatal(err)
	}
	pickle, err := io.ReadAll(raw)
	if err != nil {
		t.Fatal(err)
	}
	v, err := unpickle.Decode(pickle, map[unpickle.Class]bool{"torch._utils._rebuild_tensor_v2": true, "torch.FloatStorage": true})
	if err != nil {
		t.Fatal(err)
	}
	return show(v)
}

func show(v any) string {
	var parts []string
	switch v := v.(type) {
	case *unpickle.Dict:
		for i, k := range v.Keys {
			parts = append(parts, show(k)+": "+show(v.Values[i]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case *unpickle.List:
		for _, item := range v.Items {
			parts = append(parts, show(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case unpickle.Tuple:
		return show(&unpickle.List{Items: v})
	case *unpickle.Object: // its first argument is the storage, whose ID has the entry at index 2
		storage := v.Args[0].(*unpickle.Reference)
		return fmt.Sprintf("tensor %v", storage.ID.(unpickle.Tuple)[2])
	}
	return fmt.Sprint(v)
}

// TestWriteWeights checks the names and the values of the weights.
func TestWriteWeights(t *testing.T) {
	var file bytes.Buffer
	if err := WriteWeights(&file, snapshot(t, true)); err != nil {
		t.Fatal(err)
	}
	if got, want := read(t, file.Bytes()), "{0.bias: tensor 0, 0.weight: tensor 1}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestWriteOptimizer checks the state_dicts of the optimizers against those of torch.optim.
func TestWriteOptimizer(t *testing.T) {
	const weight, both = "param_names: [0.weight], params: [0]", "param_names: [0.weight, 0.bias], params: [0, 1]"
	matrices := []optim.Group{{Selects: func(p *nn.Param) bool { return !p.IsMatrix() }, WeightDecay: 0.25}}
	for name, tt := range map[string]struct {
		options     optim.Options
		groups      []optim.Group
		initialized bool
		state       []string // names of tensors
		want        string
	}{
		"sgd": {
			options:     optim.Options{Kind: optim.KindSGD, LR: 0.5, Momentum: 0.75, Nesterov: true},
			initialized: true,
			state:       []string{"momentum.0.bias", "momentum.0.weight"},
			want: "{state: {0: {momentum_buffer: tensor 0}, 1: {momentum_buffer: tensor 1}}, " +
				"param_groups: [{lr: 0.5, weight_decay: 0, momentum: 0.75, dampening: 0, nesterov: true, " + both + "}]}",
		},
		"adam": {
			options:     optim.Options{Kind: optim.KindAdam, LR: 0.5, Beta1: 0.75, Beta2: 0.875, Eps: 0.125},
			initialized: true,
			state:       []string{"exp_avg.0.bias", "exp_avg.0.weight", "exp_avg_sq.0.bias", "exp_avg_sq.0.weight", "step"},
			want: "{state: {0: {step: tensor 0, exp_avg: tensor 1, exp_avg_sq: tensor 2}, 1: {step: tensor 3, exp_avg: tensor 4, exp_avg_sq: tensor 5}}, " +
				"param_groups: [{lr: 0.5, weight_decay: 0, betas: [0.75, 0.875], eps: 0.125, amsgrad: false, " + both + "}]}",
		},
		"groups before the first step": {
			options: optim.Options{Kind: optim.KindSGD, LR: 0.5, WeightDecay: 0.5},
			groups:  matrices,
			want: "{state: {}, param_groups: [{lr: 0.5, weight_decay: 0.5, momentum: 0, dampening: 0, nesterov: false, " + weight + "}, " +
				"{lr: 0.5, weight_decay: 0.25, momentum: 0, dampening: 0, nesterov: false, param_names: [0.bias], params: [1]}]}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var file bytes.Buffer
			if err := WriteOptimizer(&file, snapshot(t, tt.initialized, tt.state...), tt.options, tt.groups); err != nil {
				t.Fatal(err)
			}
			if got := read(t, file.Bytes()); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestWriteOptimizerErrors checks the errors for optimizers that PyTorch does not have, and for
// incomplete state.
func TestWriteOptimizerErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		kind, want string
	}{
		"not in torch.optim": {optim.KindLion, `optimizer "lion"`},
		"missing state":      {optim.KindSGD, `no "momentum." for parameter "0.weight"`},
	} {
		err := WriteOptimizer(io.Discard, snapshot(t, true, "momentum.0.bias"), optim.Options{Kind: tt.kind}, nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

// TestSortByRegistration checks the order of the parameters of models, and that an unknown name is
// an error.
func TestSortByRegistration(t *testing.T) {
	for name, tt := range map[string]struct {
		names, want, err string
	}{
		"layers": {names: "10.bias 10.weight 2.bias 2.weight", want: "2.weight 2.bias 10.weight 10.bias"},
		"gpt": {
			names: "h.0.attn.c_attn.bias h.0.attn.c_attn.weight h.0.attn.c_proj.weight h.0.ln_1.weight h.0.ln_2.weight h.0.mlp.c_fc.weight h.0.mlp.c_proj.weight h.1.ln_1.weight ln_f.bias ln_f.weight wpe.weight wte.weight",
			want:  "wte.weight wpe.weight h.0.ln_1.weight h.0.attn.c_attn.weight h.0.attn.c_attn.bias h.0.attn.c_proj.weight h.0.ln_2.weight h.0.mlp.c_fc.weight h.0.mlp.c_proj.weight h.1.ln_1.weight ln_f.weight ln_f.bias",
		},
		"unknown": {names: "0.weight 0.gain", err: `parameter "0.gain"`},
	} {
		var params []torchfile.Tensor
		for _, n := range strings.Fields(tt.names) {
			params = append(params, torchfile.Tensor{Name: n})
		}
		err := sortByRegistration(params)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: got %v, want %q", name, err, tt.err)
			}
			continue
		}
		var got []string
		for _, p := range params {
			got = append(got, p.Name)
		}
		if err != nil || !reflect.DeepEqual(got, strings.Fields(tt.want)) {
			t.Errorf("%s: got %v, %v, want %s", name, got, err, tt.want)
		}
	}
}
