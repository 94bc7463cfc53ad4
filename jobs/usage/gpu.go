package usage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/capped"
	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/printable"
)

const (
	// toolTimeout limits a call of nvidia-smi or rocm-smi.
	toolTimeout = 20 * time.Second
	// maxToolFailures is the number of failures in a row after which a tool is not called again.
	maxToolFailures = 3
	// maxToolOutput is the maximum size of the output of a tool, in bytes.
	maxToolOutput = 1 << 20
)

// A gpuSample is the state of a GPU at one time. Values are negative if they are unknown.
type gpuSample struct {
	index       int
	uuid, name  string
	busy        float64 // from 0 to 1
	used, total float64 // bytes
}

// A gpuTool prints the state of all GPUs.
type gpuTool struct {
	name    string
	args    []string
	parse   func([]byte) ([]gpuSample, error)
	visible []string // variables with the GPUs of this process, by precedence
}

var gpuTools = []gpuTool{
	{"nvidia-smi", []string{"--query-gpu=index,uuid,name,utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits"}, parseNVIDIA,
		[]string{"CUDA_VISIBLE_DEVICES"}},
	{"rocm-smi", []string{"--showuse", "--showmeminfo", "vram", "--showproductname", "--json"}, parseROCm,
		[]string{"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}},
}

// readGPUs calls a tool. The tool gets only the variables that it needs.
func (g gpuTool) readGPUs(ctx context.Context, env []string) ([]gpuSample, error) {
	path, err := environ.LookPath(env, g.name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, g.args...)
	cmd.Env = []string{"LC_ALL=C"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "HOME", "PYTHONHOME", "PYTHONPATH"} {
		if value, ok := environ.Lookup(env, name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	out := capped.Buffer{Limit: maxToolOutput}
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	return g.parse(out.Bytes())
}

var errNoGPUs = errors.New("the output contains no GPUs")

// parseNVIDIA parses the output of nvidia-smi.
func parseNVIDIA(text []byte) (gpus []gpuSample, err error) {
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), ", ")
		if len(f) < 6 {
			continue
		}
		index, err := strconv.Atoi(f[0])
		if err != nil || index < 0 {
			continue
		}
		n := len(f) // a name may contain ", "
		name := strings.Join(f[2:n-3], ", ")
		gpus = append(gpus, gpuSample{index, f[1], name, scaled(f[n-3], 0.01), scaled(f[n-2], 1<<20), scaled(f[n-1], 1<<20)})
	}
	if len(gpus) == 0 {
		return nil, errNoGPUs
	}
	return gpus, nil
}

// scaled returns a number times a scale, or -1 if text is not a number, such as "[N/A]".
func scaled(text string, scale float64) float64 {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(v) || v < 0 || v > 1e15 {
		return -1
	}
	return v * scale
}

// parseROCm parses the JSON of rocm-smi. Names of values differ between versions in case only.
func parseROCm(text []byte) (gpus []gpuSample, err error) {
	start := bytes.IndexByte(text, '{') // after warnings
	if start < 0 {
		return nil, errNoGPUs
	}
	var cards map[string]map[string]any
	if err := json.NewDecoder(bytes.NewReader(text[start:])).Decode(&cards); err != nil {
		return nil, err
	}
	for card, values := range cards {
		digits, ok := strings.CutPrefix(card, "card")
		index, err := strconv.Atoi(digits)
		if !ok || err != nil || index < 0 {
			continue // "system"
		}
		g := gpuSample{index: index, busy: -1, used: -1, total: -1}
		for name, v := range values {
			text, _ := v.(string)
			switch strings.ToLower(name) {
			case "gpu use (%)":
				g.busy = scaled(text, 0.01)
			case "vram total memory (b)":
				g.total = scaled(text, 1)
			case "vram total used memory (b)":
				g.used = scaled(text, 1)
			case "card series":
				g.name = text
			}
		}
		gpus = append(gpus, g)
	}
	if len(gpus) == 0 {
		return nil, errNoGPUs
	}
	slices.SortFunc(gpus, func(a, b gpuSample) int { return cmp.Compare(a.index, b.index) })
	return gpus, nil
}

// selectVisible returns the GPUs in a list of indices or UUIDs, such as CUDA_VISIBLE_DEVICES. It
// returns all GPUs if the list is empty or has an entry that it does not know. A list of a single
// GPU may belong to one rank, so it counts only if the node has a single rank.
func selectVisible(gpus []gpuSample, list string, ranks int) []gpuSample {
	words := strings.Split(list, ",")
	if list == "" || len(words) == 1 && ranks != 1 {
		return gpus
	}
	var chosen []gpuSample
	for _, w := range words {
		w = strings.TrimSpace(w)
		i := slices.IndexFunc(gpus, func(g gpuSample) bool {
			return w == strconv.Itoa(g.index) || len(w) >= 8 && strings.HasPrefix(g.uuid, w)
		})
		if i < 0 {
			return gpus
		}
		chosen = append(chosen, gpus[i])
	}
	return chosen
}

// A gpuTally sums the samples of one GPU.
type gpuTally struct {
	name                        string
	samples, busySamples, usedN int
	busy, busyMost              float64
	used, usedMost, total       float64
}

func (t *gpuTally) add(g gpuSample) {
	t.samples++
	name := printable.Line(strings.ToValidUTF8(g.name, ""))
	t.name = strings.ToValidUTF8(name[:min(len(name), maxName)], "")
	if g.busy >= 0 {
		busy := min(g.busy, 1)
		t.busySamples, t.busy, t.busyMost = t.busySamples+1, t.busy+busy, max(t.busyMost, busy)
	}
	if g.used >= 0 {
		t.usedN, t.used, t.usedMost = t.usedN+1, t.used+g.used, max(t.usedMost, g.used)
	}
	t.total = max(t.total, g.total, 0)
}

func (t *gpuTally) gpu(index int) GPU {
	g := GPU{Index: index, Name: t.name, Samples: t.samples, MemoryPeak: int64(t.usedMost), MemoryTotal: int64(t.total)}
	if t.busySamples > 0 {
		mean, peak := t.busy/float64(t.busySamples), t.busyMost
		g.BusyMean, g.BusyPeak = &mean, &peak
	}
	if t.usedN > 0 {
		g.MemoryMean = int64(t.used / float64(t.usedN))
	}
	return g
}
