package plan

import (
	"cmp"
	"slices"
)

// Rates holds the speeds of launches on a GPU. They are assumptions, not measurements.
type Rates struct {
	// Matmul, Matmul32, and Attention are the FLOP/s of matmuls in bf16 and float32, and of attention.
	Matmul    float64 `json:"matmul_flop_per_s"`
	Matmul32  float64 `json:"matmul32_flop_per_s"`
	Attention float64 `json:"attention_flop_per_s"`
	// Memory is the rate in bytes/s of kernels that use the whole GPU, and Block the rate of a
	// single block.
	Memory float64 `json:"memory_bytes_per_s"`
	Block  float64 `json:"block_bytes_per_s"`
	// Launch is the time to start a kernel in a graph, in seconds.
	Launch float64 `json:"launch_s"`
}

// These are assumptions: blockRate in bytes/s, launchSeconds, and otherwise fractions of a GPU's data
// sheet, which give 613 TFLOP/s for matmuls and 4.1 TB/s on an H200. The fractions for attention count
// only positions that are not masked. On Hopper, mma reaches only a part of the tensor cores' peak, and
// shared memory limits it to 316 TFLOP/s. docs/gpu-development.md derives the fraction for wgmma.
const (
	hopperMatmul   = 0.62
	hopperMMA      = 0.165
	hopperWGMMA    = 0.34
	ampereMatmul   = 0.7
	matmul32       = 0.7
	ampereMMA      = 0.35
	memoryFraction = 0.85
	blockRate      = 13 * giga
	launchSeconds  = 1.6e-6
)

// Rates returns the assumed rates of a bf16 step, with attention by wgmma or mma.
func (g GPU) Rates(wgmma bool) Rates {
	r := Rates{Matmul: ampereMatmul * g.Half, Matmul32: matmul32 * g.Single, Attention: ampereMMA * g.Half, Memory: memoryFraction * g.Bandwidth, Block: blockRate, Launch: launchSeconds}
	if g.IsHopper() {
		r.Matmul, r.Attention = hopperMatmul*g.Half, hopperMMA*g.Half
		if wgmma {
			r.Attention = hopperWGMMA * g.Half
		}
	}
	return r
}

// seconds returns the time of a launch: the longer time of its FLOPs and of its bytes.
func (r Rates) seconds(l Launch) float64 {
	switch l.Class {
	case Matmul:
		return r.Launch + max(l.FLOP/r.Matmul, l.Bytes/r.Memory)
	case Matmul32:
		return r.Launch + max(l.FLOP/r.Matmul32, l.Bytes/r.Memory)
	case Attention:
		return r.Launch + max(l.FLOP/r.Attention, l.Bytes/r.Memory)
	case OneBlock:
		return r.Launch + l.Bytes/r.Block
	}
	return r.Launch + l.Bytes/r.Memory
}

// Launches is the sum of launches, such as all launches of a kernel.
type Launches struct {
	Kernel   string  `json:"kernel,omitempty"`
	Class    Class   `json:"class,omitempty"`
	Launches int     `json:"launches"`
	FLOP     float64 `json:"flop"`
	Bytes    float64 `json:"bytes"`
	Seconds  float64 `json:"seconds"`
}

func (s *Launches) add(l Launch, seconds float64) {
	s.Launches++
	s.FLOP += l.FLOP
	s.Bytes += l.Bytes
	s.Seconds += seconds
}

// SpeedModel is the time of a step's launches by kernel and by class, and in total.
type SpeedModel struct {
	Kernels []Launches `json:"kernels"`
	Classes []Launches `json:"classes"`
	Step    Launches   `json:"step"`
}

// Explain returns the speed model of launches. Kernels are sorted by class, then by time.
func Explain(launches []Launch, r Rates) SpeedModel {
	var m SpeedModel
	for _, c := range classes {
		m.Classes = append(m.Classes, Launches{Class: c})
	}
	kernels := map[string]*Launches{}
	for _, l := range launches {
		k := kernels[l.Kernel]
		if k == nil {
			k = &Launches{Kernel: l.Kernel, Class: l.Class}
			kernels[l.Kernel] = k
		}
		for _, s := range []*Launches{k, &m.Classes[slices.Index(classes, l.Class)], &m.Step} {
			s.add(l, r.seconds(l))
		}
	}
	for _, k := range kernels {
		m.Kernels = append(m.Kernels, *k)
	}
	slices.SortFunc(m.Kernels, func(a, b Launches) int {
		return cmp.Or(cmp.Compare(slices.Index(classes, a.Class), slices.Index(classes, b.Class)), cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Kernel, b.Kernel))
	})
	return m
}
