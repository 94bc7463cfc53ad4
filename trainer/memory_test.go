//go:build linux

package trainer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// wide is a model of 20 million parameters in small layers. Each layer fills a bucket.
const wide = `name = "wide"
[train]
first_bucket = "1 MiB"
bucket = "3 MiB"
epochs = 1
batch = 2
seed = 1
log_every = "1 step"
strategy = %q
[train.model]
kind = "mlp"
hidden = [1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000]
[train.data]
kind = "synthetic"
task = "classification"
samples = %d
inputs = 1000
outputs = 10
[train.optimizer]
kind = "adamw"
lr = 0.001
[checkpoint]
every = "1000 steps"
`

// wideParams is its number of parameters: 20 layers and the output layer.
const (
	wideLayer  = 1000*1000 + 1000
	wideParams = 20*wideLayer + 1000*10 + 10
)

// process is a rank in a separate process.
type process struct {
	Rank     int
	Addrs    []string
	Strategy jobs.Strategy
	Dir      string
	Steps    int  // per epoch
	Stop     bool // after the third step of the process
}

// usage is the memory that a process has allocated since it was connected, in bytes.
type usage struct {
	Steady  float64 // after two steps
	P, S, H float64
	// The peak until the first step has ended, and at the end.
	Start, End float64
}

const processVariable = "TRAINER_TEST_PROCESS"

func TestMain(m *testing.M) {
	text, ok := os.LookupEnv(processVariable)
	if !ok {
		os.Exit(m.Run())
	}
	var p process
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		err = p.train()
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

// train trains and prints the usage.
func (p process) train() error {
	ctx := context.Background()
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	c, err := collective.Connect(ctx, listener, collective.Options{Rank: p.Rank, Addrs: p.Addrs, Nodes: make([]int, len(p.Addrs)), Memory: true,
		Secret: wire.Secret{9}, ConnectTimeout: time.Minute, Timeout: 60 * time.Second})
	if err != nil {
		return err
	}
	defer c.Close()
	job, err := jobs.Parse("job.toml", fmt.Appendf(nil, wide, p.Strategy, 2*len(p.Addrs)*p.Steps))
	if err != nil {
		return err
	}
	debug.FreeOSMemory()
	var u usage
	// The kernel divides memory that ranks share among them, but reports only its current value.
	// The peak of private memory is sampled continuously.
	private := watch()
	base, baseShared := private.now(), shared()
	stop, seen, common := make(chan struct{}), 0, 0.0
	observe := func(e Event) {
		if e.Kind != Trained {
			return
		}
		if seen++; seen == 2 {
			common = shared() - baseShared
			u.Steady, u.Start = private.now()-base+common, private.most()-base+common
			if p.Stop {
				close(stop)
			}
		}
	}
	_, err = Run(ctx, Options{Job: job, Run: "run", Checkpoints: p.Dir, Comm: c, Threads: 1, LocalRanks: len(p.Addrs), Stop: stop,
		Observe: observe})
	if err != nil {
		return err
	}
	u.End = private.most() - base + common
	return json.NewEncoder(os.Stdout).Encode(u)
}

// shared returns this process's proportional share of shared memory.
func shared() float64 {
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(text)) {
		var kilobytes float64
		if n, _ := fmt.Sscanf(line, "Pss_Shmem: %f kB", &kilobytes); n == 1 {
			return 1024 * kilobytes
		}
	}
	panic("the kernel does not tell of shared memory")
}

// watcher samples this process's private memory without allocating.
type watcher struct {
	pages *os.File
	peak  atomic.Int64
}

func watch() *watcher {
	f, err := os.Open("/proc/self/statm")
	if err != nil {
		panic(err)
	}
	w := &watcher{pages: f}
	go func() {
		for range time.Tick(time.Millisecond) {
			n := int64(w.now())
			for old := w.peak.Load(); n > old && !w.peak.CompareAndSwap(old, n); old = w.peak.Load() {
			}
		}
	}()
	return w
}

func (w *watcher) now() float64 {
	var text [128]byte
	n, err := w.pages.ReadAt(text[:], 0)
	if err != nil && err != io.EOF {
		panic(err)
	}
	var numbers [3]int // all, resident, resident and shared or file-backed
	at := 0
	for _, c := range text[:n] {
		switch {
		case at == len(numbers):
		case c == ' ':
			at++
		default:
			numbers[at] = 10*numbers[at] + int(c-'0')
		}
	}
	return float64((numbers[1] - numbers[2]) * os.Getpagesize())
}

// most returns the peak since its last call.
func (w *watcher) most() float64 { return max(float64(w.peak.Swap(0)), w.now()) }

// run runs the ranks and returns their memory usage.
func (p process) run(t *testing.T, ranks int) []usage {
	t.Helper()
	var files []*os.File
	for range ranks {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f, err := l.(*net.TCPListener).File()
		l.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		p.Addrs, files = append(p.Addrs, l.Addr().String()), append(files, f)
	}
	var commands []*exec.Cmd
	out := make([]strings.Builder, ranks)
	for r, f := range files {
		p.Rank = r
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), processVariable+"="+string(text))
		cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = []*os.File{f}, &out[r], os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		commands = append(commands, cmd)
	}
	all := make([]usage, ranks)
	for r, cmd := range commands {
		err := cmd.Wait()
		if err == nil {
			err = json.Unmarshal([]byte(out[r].String()), &all[r])
		}
		if err != nil {
			t.Fatalf("%s, rank %d of %d: %v: %s", p.Strategy, r, ranks, err, out[r].String())
		}
	}
	return all
}

// TestMemoryOfProcesses checks that the memory of ranks in separate processes follows the formulas
// of the ZeRO paper plus the temporary buckets, within 10%. This includes loading and writing
// checkpoints, on rank 0 also. The estimate before the run must match within 5%.
func TestMemoryOfProcesses(t *testing.T) {
	perParam := map[jobs.Strategy]struct{ whole, divided, lent float64 }{
		jobs.StrategyDDP: {16, 0, 0}, jobs.StrategyZeRO1: {8, 8, 0}, jobs.StrategyZeRO2: {4, 12, 2}, jobs.StrategyZeRO3: {0, 16, 4},
	}
	for _, ranks := range []int{2, 4} {
		for _, strategy := range strategyNames {
			f := perParam[strategy]
			formula := wideParams * (f.whole + f.divided/float64(ranks))
			want := formula + 4*wideLayer*f.lent
			p := process{Strategy: strategy, Dir: t.TempDir(), Steps: 4}
			if need := p.need(t, ranks); math.Abs(need-want) > want/20 {
				t.Errorf("%s on %d: a run says it needs %.4g bytes, want %.4g", strategy, ranks, need, want)
			}
			lives := []string{"new"}
			if ranks == 4 {
				lives, p.Steps = []string{"new", "resumed"}, 5
			}
			for i, life := range lives {
				p.Stop = i < len(lives)-1
				began := time.Now()
				all := p.run(t, ranks)
				for rank, u := range all {
					for when, got := range map[string]float64{"steps": u.Steady, "start": u.Start, "end": u.End} {
						if got > want*1.1 || got < want*0.9 {
							t.Errorf("%s, rank %d of %d, %s, %s: %.4g bytes, want %.4g", strategy, rank, ranks, life, when, got, want)
						}
					}
				}
				t.Logf("%s on %d, %s: %.1f MB by the formula, %.1f with what is lent; rank 0 at the start, in steps and at the end %.1f, %.1f, %.1f, rank 1 %.1f, %.1f, %.1f; %.1f s", strategy, ranks, life,
					formula/1e6, want/1e6, all[0].Start/1e6, all[0].Steady/1e6, all[0].End/1e6, all[1].Start/1e6, all[1].Steady/1e6, all[1].End/1e6, time.Since(began).Seconds())
			}
		}
	}
}

// sized is a communicator that reports a given number of ranks.
type sized struct {
	collective.SingleRank
	ranks int
}

func (s sized) Size() int { return s.ranks }

// need returns a run's estimate of a rank's memory in bytes.
func (p process) need(t *testing.T, ranks int) float64 {
	t.Helper()
	return needed(t, job(t, fmt.Sprintf(wide, p.Strategy, 2*ranks*p.Steps)), ranks, cpu.New(1))
}

func needed(t *testing.T, j *jobs.Job, ranks int, d device.Device) float64 {
	t.Helper()
	r := &run{Options: Options{Job: j, Comm: sized{ranks: ranks}}, train: j.Train, batch: j.Train.Batch, device: d}
	var err error
	if r.data, r.eval, err = data.Open(t.Context(), DataOptions(r.train)); err != nil {
		t.Fatal(err)
	}
	if r.model, err = NewModel(&r.train.Model, r.data); err != nil {
		t.Fatal(err)
	}
	need, _, err := r.memoryNeeded()
	if err != nil {
		t.Fatal(err)
	}
	return float64(need)
}

// TestNeedOfRoundedOperands checks the estimate for rounded operands on a GPU in bf16. The largest
// ones determine it: two rows of activations, or of their gradients, as left operand of a matmul,
// and a layer's weight as right operand.
func TestNeedOfRoundedOperands(t *testing.T) {
	j := job(t, fmt.Sprintf(wide, jobs.StrategyDDP, 2))
	without := needed(t, j, 1, &plan.Counter{StoresBF16: true})
	j.Train.Precision = jobs.PrecisionBF16
	if more, want := needed(t, j, 1, &plan.Counter{StoresBF16: true})-without, 2.0*(2*1000+1000*1000); more != want {
		t.Errorf("%.0f bytes more in bf16, want %.0f", more, want)
	}
	if more := needed(t, j, 1, cpu.New(1)) - without; more != 0 {
		t.Errorf("%.0f bytes more in bf16 on a processor", more)
	}
}

// TestWeightsAreRoundedIfTheyFit checks that a copy of the weights in bfloat16 is used only on a GPU in
// bf16, and only if it leaves a tenth of the memory free.
func TestWeightsAreRoundedIfTheyFit(t *testing.T) {
	const need, copied = 7_000_000, 2 * wideParams
	j := job(t, fmt.Sprintf(wide, jobs.StrategyDDP, 2))
	m, err := nn.NewMLP(1000, nn.MLPOptions{Hidden: slices.Repeat([]int{1000}, 20), Activation: "relu"}, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		device    device.Device
		precision jobs.Precision
		free      float64
		want      bool
	}{
		{&plan.Counter{StoresBF16: true}, jobs.PrecisionBF16, (need + copied) / 0.89, true},
		{&plan.Counter{StoresBF16: true}, jobs.PrecisionBF16, (need + copied) / 0.91, false},
		{&plan.Counter{StoresBF16: true}, jobs.PrecisionFP32, 1e12, false},
		{cpu.New(1), jobs.PrecisionBF16, 1e12, false},
	} {
		j.Train.Precision = c.precision
		r := &run{train: j.Train, device: c.device, model: m}
		if got := r.canRoundWeights(need, int64(c.free)); got != c.want {
			t.Errorf("%s in %s with %.0f bytes free: %t, want %t", c.device.Name(), c.precision, c.free, got, c.want)
		}
	}
}
