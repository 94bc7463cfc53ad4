package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
	"github.com/ddpbatch/ddpbatch/trainer/torchfile"
	"github.com/ddpbatch/ddpbatch/trainer/unpickle"
)

// writeOptimizer writes the optimizer state of a checkpoint as a state_dict for the PyTorch
// optimizer of the same name. The learning rate is the rate of the next step. If weight decay
// applies only to matrices, there are two parameter groups, with and without it.
func writeOptimizer(w io.Writer, s *checkpoint.Snapshot) error {
	state := map[string]torchfile.Tensor{}
	var names []string
	isMatrix := map[string]bool{}
	for _, file := range []string{checkpoint.ModelFile, checkpoint.OptimizerFile} {
		tensors, err := readTensors(s.Files[file])
		if err != nil {
			return fmt.Errorf("%q: %w", file, err)
		}
		for _, t := range tensors {
			if file == checkpoint.ModelFile {
				names = append(names, t.Name)
				isMatrix[t.Name] = len(t.Shape) >= 2
			} else {
				state[t.Name] = t
			}
		}
	}
	if err := sortByRegistration(names); err != nil {
		return err
	}
	options, stateParts, err := torchOptions(&s.Manifest)
	if err != nil {
		return err
	}
	o := torchfile.Optimizer{Groups: []torchfile.Group{{Names: names, Options: options}}}
	if s.Manifest.Spec["optimizer.decay"] == `"`+string(jobs.DecayMatrices)+`"` {
		o.Groups = splitGroup(o.Groups[0], func(name string) bool { return isMatrix[name] })
		names = slices.Concat(o.Groups[0].Names, o.Groups[1].Names)
	}
	if s.Manifest.OptimInit {
		for _, name := range names {
			var tensors []torchfile.Tensor
			for _, p := range stateParts {
				t, ok := state[p.name+name]
				if p.name == "step" {
					t, ok = state[p.name]
				}
				if !ok {
					return fmt.Errorf("%q has no %q for parameter %q", checkpoint.OptimizerFile, p.name, name)
				}
				t.Name = p.torchName
				tensors = append(tensors, t)
			}
			o.State = append(o.State, tensors)
		}
	}
	return torchfile.WriteOptimizer(w, o)
}

// splitGroup splits a group into the selected parameters, with weight decay, and the remaining
// parameters, without weight decay.
func splitGroup(g torchfile.Group, selected func(name string) bool) []torchfile.Group {
	plain := torchfile.Group{Options: slices.Clone(g.Options)}
	for i, o := range plain.Options {
		if o.Name == "weight_decay" {
			plain.Options[i].Value = 0.0
		}
	}
	decayed := torchfile.Group{Options: g.Options}
	for _, name := range g.Names {
		to := &plain
		if selected(name) {
			to = &decayed
		}
		to.Names = append(to.Names, name)
	}
	return []torchfile.Group{decayed, plain}
}

// A statePart is the name of an optimizer state tensor in ddpbatch and in PyTorch.
type statePart struct{ name, torchName string }

// torchOptions returns the settings of a run as options of torch.optim's SGD, Adam, or AdamW,
// with the names of the state tensors.
func torchOptions(m *checkpoint.Manifest) ([]torchfile.Option, []statePart, error) {
	number := func(key string) float64 {
		v, _ := strconv.ParseFloat(m.Spec["optimizer."+key], 64) // the spec omits zero values
		return v
	}
	rate, err := trainer.RateAt(m.Spec, int64(m.Step))
	if err != nil {
		return nil, nil, err
	}
	options := []torchfile.Option{{Name: "lr", Value: rate}, {Name: "weight_decay", Value: number("weight_decay")}}
	switch m.Optimizer {
	case optim.KindSGD:
		options = append(options, torchfile.Option{Name: "momentum", Value: number("momentum")}, torchfile.Option{Name: "dampening", Value: 0.0},
			torchfile.Option{Name: "nesterov", Value: m.Spec["optimizer.nesterov"] == "true"})
		return options, []statePart{{"momentum.", "momentum_buffer"}}, nil
	case optim.KindAdam, optim.KindAdamW:
		options = append(options, torchfile.Option{Name: "betas", Value: unpickle.Tuple{number("beta1"), number("beta2")}},
			torchfile.Option{Name: "eps", Value: number("eps")}, torchfile.Option{Name: "amsgrad", Value: false})
		return options, []statePart{{"step", "step"}, {"exp_avg.", "exp_avg"}, {"exp_avg_sq.", "exp_avg_sq"}}, nil
	}
	return nil, nil, hints.Errorf("export the weights, without --optimizer",
		"torch.optim cannot load the state of optimizer %q", m.Optimizer)
}

// registrationOrder lists the words in parameter names, in the order in which the models of PyTorch
// and Hugging Face register them. Numbers in names sort in numerical order.
var registrationOrder = []string{"wte", "wpe", "h", "ln_f", "ln_1", "attn", "ln_2", "mlp", "c_attn", "c_fc", "c_proj", "weight", "bias"}

// sortByRegistration sorts parameter names into the order of the model's parameters().
func sortByRegistration(names []string) error {
	for _, n := range names {
		for _, word := range strings.Split(n, ".") {
			if _, err := strconv.Atoi(word); err != nil && !slices.Contains(registrationOrder, word) {
				return fmt.Errorf("the position of parameter %q in the PyTorch model is unknown", n)
			}
		}
	}
	position := func(word string) int {
		if n, err := strconv.Atoi(word); err == nil {
			return n
		}
		return slices.Index(registrationOrder, word)
	}
	slices.SortFunc(names, func(a, b string) int {
		return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(a, b string) int { return cmp.Compare(position(a), position(b)) })
	})
	return nil
}

// readTensors returns the tensors of a checkpoint file. It accepts only float32 tensors.
func readTensors(file *io.SectionReader) ([]torchfile.Tensor, error) {
	arrays, _, err := safetensors.ReadHeader(io.NewSectionReader(file, 0, file.Size()), file.Size())
	if err != nil {
		return nil, err
	}
	tensors := make([]torchfile.Tensor, len(arrays))
	for i, a := range arrays {
		if a.DType != safetensors.F32 {
			return nil, fmt.Errorf("tensor %q has type %s, want %s", a.Name, a.DType, safetensors.F32)
		}
		tensors[i] = torchfile.Tensor{Name: a.Name, Shape: a.Shape, Data: io.NewSectionReader(file, a.Begin, a.End-a.Begin)}
	}
	return tensors, nil
}
