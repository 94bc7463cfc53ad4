package nn

import (
	"fmt"
	"strconv"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// activations maps the names in model options to activations.
var activations = map[string]device.Activation{"relu": device.ReLU, "tanh": device.Tanh, "gelu": device.GELU}

const (
	// maxParams exceeds the memory of any cluster and is small enough for byte offsets. Ranks that
	// shard parameters (ZeRO) need not hold all of them.
	maxParams = 1 << 40

	// maxTensor is the maximum number of elements of a single parameter, which is computed and sent
	// as a whole. Messages have been tested up to 8 GiB, and GPUs count rows and columns in 32
	// bits.
	maxTensor = 1 << 31
)

// NewLinear returns the model of PyTorch's nn.Linear(in, out), with parameters "weight" and "bias".
func NewLinear(in, out int) (*Sequential, error) {
	if err := checkWidths(in, nil, out); err != nil {
		return nil, err
	}
	return newSequential(in, []Layer{newLinear("", in, out)}), nil
}

// MLPOptions is the shape of a multilayer perceptron.
type MLPOptions struct {
	Hidden     []int   // widths
	Activation string  // "relu", "tanh", or "gelu", after each layer except the last
	Dropout    float64 // after each activation
}

// NewMLP returns the model of PyTorch's nn.Sequential of nn.Linear layers. After each layer except
// the last there is an activation and, if o.Dropout is above 0, nn.Dropout. Parameters have the
// names of its state_dict: "0.weight", "0.bias", and so on.
func NewMLP(in int, o MLPOptions, out int) (*Sequential, error) {
	if err := checkWidths(in, o.Hidden, out); err != nil {
		return nil, err
	}
	s := stack{width: in}
	if err := s.connect(o, out); err != nil {
		return nil, err
	}
	return newSequential(in, s.layers), nil
}

// stack builds a Sequential, whose layers are named by their index.
type stack struct {
	layers []Layer
	width  int
}

func (s *stack) add(l Layer) {
	s.layers = append(s.layers, l)
	s.width = l.Width()
}

// prefix returns the prefix for the names of the next layer's parameters.
func (s *stack) prefix() string { return strconv.Itoa(len(s.layers)) + "." }

// activate adds an activation.
func (s *stack) activate(name string) error {
	f, ok := activations[name]
	if !ok {
		return fmt.Errorf("unknown activation %q, want %q, %q or %q", name, "relu", "tanh", "gelu")
	}
	s.add(&activation{width: s.width, f: f})
	return nil
}

// drop adds dropout, unless p is 0.
func (s *stack) drop(p float64) error {
	if err := checkDropout(p); err != nil || p == 0 {
		return err
	}
	s.add(&dropout{width: s.width, p: float32(p), site: uint64(len(s.layers))})
	return nil
}

// connect adds the layers of an MLP.
func (s *stack) connect(o MLPOptions, out int) error {
	for _, h := range o.Hidden {
		s.add(newLinear(s.prefix(), s.width, h))
		if err := s.activate(o.Activation); err != nil {
			return err
		}
		if err := s.drop(o.Dropout); err != nil {
			return err
		}
	}
	s.add(newLinear(s.prefix(), s.width, out))
	return nil
}

// checkDropout returns an error unless p is a probability below 1 in float32: the remaining values
// are divided by 1-p.
func checkDropout(p float64) error {
	if !(p >= 0 && float32(p) < 1) {
		return fmt.Errorf("dropout is %v, want a number from 0 to below 1 in float32", p)
	}
	return nil
}

// checkWidths returns an error unless dense layers of these widths are possible.
func checkWidths(in int, hidden []int, out int) error {
	params, width := 0, in
	for i, h := range append(append([]int{in}, hidden...), out) {
		if h < 1 || h > maxTensor {
			return fmt.Errorf("layer %d has width %d, want 1 to %d", i, h, maxTensor)
		}
		if i > 0 {
			if width*h > maxTensor {
				return fmt.Errorf("layer %d has %d x %d weights, more than %d", i, width, h, maxTensor)
			}
			params += (width + 1) * h
		}
		if params > maxParams {
			return fmt.Errorf("more than %d parameters", maxParams)
		}
		width = h
	}
	return nil
}
