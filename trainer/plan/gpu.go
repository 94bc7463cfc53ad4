package plan

import (
	"regexp"
	"strconv"
	"strings"
)

// GPU holds a GPU's properties from the vendor's data sheet, without sparsity.
type GPU struct {
	Name      string
	Memory    float64 // bytes
	Half      float64 // FLOP/s of bfloat16 matmuls (float16 on GPUs without bfloat16)
	Single    float64 // FLOP/s of float32 without reduced precision
	Bandwidth float64 // memory bandwidth, bytes/s
	Link      float64 // bytes/s to the other GPUs of its node, per direction
	Major     int     // major version of the compute capability, 0 without CUDA
}

// IsHopper reports whether the GPU has compute capability 9.0.
func (g GPU) IsHopper() bool { return g.Major == 9 }

// Utilization is the assumed fraction of a GPU's FLOP/s. Well-tuned programs report 38% to 60% on
// A100 and H100.
const Utilization = 0.4

const (
	giga = 1e9
	tera = 1e12
	gibi = 1 << 30 // memory vendors' GB
)

// gpus are the known GPUs. If a name contains another name, it comes first. MI250X is one of the
// card's two halves, which programs see as a GPU.
var gpus = []GPU{
	{"GH200", 96 * gibi, 989 * tera, 67 * tera, 4000 * giga, 150 * giga, 9},
	{"H200", 141 * gibi, 989 * tera, 67 * tera, 4800 * giga, 450 * giga, 9},
	{"H100", 80 * gibi, 989 * tera, 67 * tera, 3350 * giga, 450 * giga, 9},
	{"A100", 40 * gibi, 312 * tera, 19.5 * tera, 1555 * giga, 300 * giga, 8},
	{"MI250X", 64 * gibi, 191.5 * tera, 23.9 * tera, 1638 * giga, 50 * giga, 0},
	{"A5000", 24 * gibi, 111 * tera, 27.8 * tera, 768 * giga, 25 * giga, 8},
	{"V100", 16 * gibi, 125 * tera, 15.7 * tera, 900 * giga, 150 * giga, 7},
}

var gigabytes = regexp.MustCompile(`(?i)(\d+) *GB`)

// GPUNames returns the names of the known GPUs.
func GPUNames() []string {
	names := make([]string, len(gpus))
	for i, g := range gpus {
		names[i] = g.Name
	}
	return names
}

// FindGPU returns the GPU that a text names, such as "A100 80 GB" in a site profile. If the text
// lists several memory sizes, it uses the smallest.
func FindGPU(text string) (GPU, bool) {
	for _, g := range gpus {
		if !strings.Contains(strings.ToUpper(text), g.Name) {
			continue
		}
		smallest := 0.0
		for _, m := range gigabytes.FindAllStringSubmatch(text, -1) {
			if n, err := strconv.ParseFloat(m[1], 64); err == nil && n > 0 && (smallest == 0 || n*gibi < smallest) {
				smallest = n * gibi
			}
		}
		if smallest > 0 {
			g.Memory = smallest
		}
		return g, true
	}
	return GPU{}, false
}
