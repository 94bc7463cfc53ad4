package engine

import (
	"fmt"
	"strings"
)

// Fusion is a set of steps that cuBLASLt performs as part of a matrix multiplication (epilogues).
// Without a fusion, a kernel of ddpbatch performs the step.
type Fusion uint8

// The fusions are:
const (
	FuseBias     Fusion = 1 << iota // adding a bias
	FuseGELU                        // GELU
	FuseGELUGrad                    // multiplying by the derivative of GELU
	FuseBiasGrad                    // summing the columns of the right operand: the gradient of a bias

	AllFusions = FuseBias | FuseGELU | FuseGELUGrad | FuseBiasGrad
)

var fusionNames = map[string]Fusion{"bias": FuseBias, "gelu": FuseGELU, "gelu_grad": FuseGELUGrad, "bias_grad": FuseBiasGrad}

// ParseFusion parses "all", "none", or names of fusions separated by commas: bias, gelu,
// gelu_grad, and bias_grad. An empty text means all fusions.
func ParseFusion(text string) (Fusion, error) {
	switch text {
	case "", "all":
		return AllFusions, nil
	case "none":
		return 0, nil
	}
	var f Fusion
	for name := range strings.SplitSeq(text, ",") {
		one, ok := fusionNames[name]
		if !ok {
			return 0, fmt.Errorf("%q: must be \"all\", \"none\", or a list of \"bias\", \"gelu\", \"gelu_grad\", and \"bias_grad\" with commas", text)
		}
		f |= one
	}
	return f, nil
}
