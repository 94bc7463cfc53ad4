// Package torchstate writes a checkpoint as state_dicts of PyTorch: the weights as the state_dict of
// the same PyTorch model ([WriteWeights]), or the optimizer's state as the state_dict of the
// optimizer of the same name in torch.optim ([WriteOptimizer]), so that a PyTorch script can continue
// the training run.
//
// The parameters of an optimizer are in the order of the PyTorch model's parameters(), or WriteOptimizer
// returns an error. The package holds no tensor in memory. The caller opens and verifies the checkpoint,
// and reads the settings of the optimizer from its manifest. Package torchfile defines the format.
package torchstate

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
	"github.com/ddpbatch/ddpbatch/trainer/torchfile"
	"github.com/ddpbatch/ddpbatch/trainer/unpickle"
)

// WriteWeights writes the weights of a checkpoint. The snapshot must contain [checkpoint.ModelFile].
func WriteWeights(w io.Writer, s *checkpoint.Snapshot) error {
	tensors, err := readTensors(s, checkpoint.ModelFile)
	if err != nil {
		return err
	}
	return torchfile.Write(w, tensors)
}

// WriteOptimizer writes the optimizer state of a checkpoint. The snapshot must contain
// [checkpoint.ModelFile] and [checkpoint.OptimizerFile]. The state_dict has the options o; o.LR must be
// the learning rate of the next step. The first parameter group has the parameters that no group
// selects, and the given groups follow.
func WriteOptimizer(w io.Writer, s *checkpoint.Snapshot, o optim.Options, groups []optim.Group) error {
	params, err := readTensors(s, checkpoint.ModelFile)
	if err != nil {
		return err
	}
	stored, err := readTensors(s, checkpoint.OptimizerFile)
	if err != nil {
		return err
	}
	if err := sortByRegistration(params); err != nil {
		return err
	}
	options, parts, err := convertOptions(o)
	if err != nil {
		return err
	}
	out := torchfile.Optimizer{Groups: split(params, options, groups)}
	if !s.Manifest.OptimInit {
		return torchfile.WriteOptimizer(w, out)
	}
	state := map[string]torchfile.Tensor{}
	for _, t := range stored {
		state[t.Name] = t
	}
	for _, g := range out.Groups {
		for _, param := range g.Names {
			var tensors []torchfile.Tensor
			for _, p := range parts {
				t, ok := state[p.key(param)]
				if !ok {
					return fmt.Errorf("%q has no %q for parameter %q", checkpoint.OptimizerFile, p.name, param)
				}
				t.Name = p.torchName
				tensors = append(tensors, t)
			}
			out.State = append(out.State, tensors)
		}
	}
	return torchfile.WriteOptimizer(w, out)
}

// split returns the parameter groups of a state_dict. All have the given options, apart from the
// weight decay.
func split(params []torchfile.Tensor, options []torchfile.Option, groups []optim.Group) []torchfile.Group {
	out := []torchfile.Group{{Options: options}}
	for _, g := range groups {
		own := slices.Clone(options)
		own[slices.IndexFunc(own, func(o torchfile.Option) bool { return o.Name == weightDecay })].Value = g.WeightDecay
		out = append(out, torchfile.Group{Options: own})
	}
	for _, t := range params {
		param := &nn.Param{Name: t.Name, Shape: t.Shape}
		i := 1 + slices.IndexFunc(groups, func(g optim.Group) bool { return g.Selects(param) })
		out[i].Names = append(out[i].Names, t.Name)
	}
	return out
}

// A statePart is the name of an optimizer state tensor in a checkpoint and in PyTorch.
type statePart struct{ name, torchName string }

// key returns the name of the tensor for a parameter. All parameters share the number of steps.
func (p statePart) key(param string) string {
	if p.name == "step" {
		return p.name
	}
	return p.name + param
}

const weightDecay = "weight_decay"

// convertOptions returns the options of SGD, Adam, or AdamW in torch.optim, with the parts of their
// state.
func convertOptions(o optim.Options) ([]torchfile.Option, []statePart, error) {
	options := []torchfile.Option{{Name: "lr", Value: o.LR}, {Name: weightDecay, Value: o.WeightDecay}}
	switch o.Kind {
	case optim.KindSGD:
		options = append(options, torchfile.Option{Name: "momentum", Value: o.Momentum}, torchfile.Option{Name: "dampening", Value: 0.0},
			torchfile.Option{Name: "nesterov", Value: o.Nesterov})
		return options, []statePart{{"momentum.", "momentum_buffer"}}, nil
	case optim.KindAdam, optim.KindAdamW:
		options = append(options, torchfile.Option{Name: "betas", Value: unpickle.Tuple{o.Beta1, o.Beta2}},
			torchfile.Option{Name: "eps", Value: o.Eps}, torchfile.Option{Name: "amsgrad", Value: false})
		return options, []statePart{{"step", "step"}, {"exp_avg.", "exp_avg"}, {"exp_avg_sq.", "exp_avg_sq"}}, nil
	}
	return nil, nil, hints.Errorf("export the weights, without --optimizer",
		"torch.optim cannot load the state of optimizer %q", o.Kind)
}

// registrationOrder lists the words in parameter names, in the order in which the models of PyTorch
// and Hugging Face register them. Numbers in names sort in numerical order.
var registrationOrder = []string{"wte", "wpe", "h", "ln_f", "ln_1", "attn", "ln_2", "mlp", "c_attn", "c_fc", "c_proj", "weight", "bias"}

// sortByRegistration sorts parameters into the order of the model's parameters().
func sortByRegistration(params []torchfile.Tensor) error {
	positions := map[string][]int{} // of the words of a name
	for _, t := range params {
		for word := range strings.SplitSeq(t.Name, ".") {
			position, err := strconv.Atoi(word)
			if err != nil {
				position = slices.Index(registrationOrder, word)
			}
			if err != nil && position < 0 {
				return fmt.Errorf("the position of parameter %q in the PyTorch model is unknown", t.Name)
			}
			positions[t.Name] = append(positions[t.Name], position)
		}
	}
	slices.SortFunc(params, func(a, b torchfile.Tensor) int { return slices.Compare(positions[a.Name], positions[b.Name]) })
	return nil
}

// readTensors returns the tensors of a file of the checkpoint. It accepts only float32 tensors.
func readTensors(s *checkpoint.Snapshot, name string) ([]torchfile.Tensor, error) {
	file := s.Files[name]
	arrays, _, err := safetensors.ReadHeader(io.NewSectionReader(file, 0, file.Size()), file.Size())
	if err != nil {
		return nil, fmt.Errorf("%q: %w", name, err)
	}
	tensors := make([]torchfile.Tensor, len(arrays))
	for i, a := range arrays {
		if a.DType != safetensors.F32 {
			return nil, fmt.Errorf("%q: tensor %q has type %s, want %s", name, a.Name, a.DType, safetensors.F32)
		}
		tensors[i] = torchfile.Tensor{Name: a.Name, Shape: a.Shape, Data: io.NewSectionReader(file, a.Begin, a.End-a.Begin)}
	}
	return tensors, nil
}
