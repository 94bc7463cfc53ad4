package engine

import "fmt"

// Attention selects the instructions of attention in bfloat16, for heads of up to 128.
type Attention uint8

// The values are:
const (
	// AutoAttention uses wgmma on compute capability 9.0 (Hopper), unless the driver rejects its
	// kernels. It uses mma on other GPUs.
	AutoAttention Attention = iota
	// MMA uses the tensor-core instructions of all supported GPUs.
	MMA
	// WGMMA is like AutoAttention, but a GPU without these instructions reports a fallback.
	WGMMA
)

// ParseAttention parses "mma" or "wgmma". An empty text means AutoAttention.
func ParseAttention(text string) (Attention, error) {
	switch text {
	case "":
		return AutoAttention, nil
	case "mma":
		return MMA, nil
	case "wgmma":
		return WGMMA, nil
	}
	return 0, fmt.Errorf("%q: must be \"mma\" or \"wgmma\"", text)
}
