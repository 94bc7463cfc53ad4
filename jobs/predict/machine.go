package predict

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
	"github.com/ddpbatch/ddpbatch/trainer/plan/measure"
)

const (
	gigabyte    = 1e9
	microsecond = 1e-6
)

// These speeds apply if neither a measurement nor a flag gives a value. For CPUs, the
// assumptions are half the peak of a core with AVX2, and 10 Gbit/s Ethernet. The memory
// bandwidth is the remainder when the other ranks of the host are busy. For GPUs, the
// assumptions are NCCL's latencies over NVLink and InfiniBand, and a single 200 Gbit/s
// adapter.
const (
	assumedCoreFLOPS     = 60 * gigabyte
	assumedCoreBandwidth = 10 * gigabyte
)

var (
	assumedLocal   = plan.Link{Latency: 5 * microsecond, Bandwidth: 8 * gigabyte}
	assumedNetwork = plan.Link{Latency: 50 * microsecond, Bandwidth: 1.25 * gigabyte}
	assumedFabric  = plan.Link{Latency: 6 * microsecond, Bandwidth: 25 * gigabyte}
)

// maxRanksHere is the maximum number of ranks in a plan. As the number of ranks per node, it makes
// the plan use a single node.
const maxRanksHere = 1 << 24

// gpuLatency is the latency of a message between GPUs of one node.
const gpuLatency = 3 * microsecond

// Memory per rank in addition to its tensors. On CPUs, it is for the program and its
// workspaces. On GPUs, it is for the contexts of the driver and the libraries.
var (
	cpuProgram = plan.Program{Fixed: 32 << 20, PerThread: 8 << 20}
	gpuProgram = plan.Program{Fixed: 1 << 30}
)

// findGPU returns the GPU that the job requests. It returns nil if the job requests none.
func (p *predictor) findGPU() (*plan.GPU, error) {
	if p.Job.Slurm.GPUsPerNode == 0 && p.GPU == "" {
		return nil, nil
	}
	if p.Measure || p.Here {
		return nil, exitcode.Usagef("set the speed of a GPU with --gflops", "--measure and --here measure CPUs only, and the job requests GPUs")
	}
	name, err := p.GPU, error(nil)
	if name == "" && p.Site.HasForeignGPUs() {
		p.assume("the GPU code of the built-in trainer needs CUDA, and %s has %s GPUs: ranks train on CPUs", p.Site.Name(), p.Site.GPUVendor())
		return nil, nil
	}
	if name == "" {
		if name, err = p.siteGPU(); err != nil {
			return nil, err
		}
	}
	g, ok := plan.FindGPU(name)
	if !ok {
		return nil, p.unknownGPU("unknown GPU %q", name)
	}
	if strings.HasPrefix(g.Name, "MI") {
		p.assume("the GPU code of the built-in trainer needs CUDA: it does not run on the %s, and the prediction holds for a program of equal efficiency", g.Name)
	}
	p.assume("one GPU per rank")
	return &g, nil
}

// siteGPU returns the GPU type of the job's partition, QOS, and constraint in the site
// profile. If they do not select one, it returns the only GPU type of the profile.
func (p *predictor) siteGPU() (string, error) {
	site := p.Site
	if r, ok := site.ResourceOf(p.Job); ok && r.GPUs != "" {
		return string(r.GPUs), nil
	}
	var names []string
	for _, r := range site.Resources {
		if n := string(r.GPUs); n != "" && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	switch len(names) {
	case 0:
		return "", p.unknownGPU("unknown GPU: the profile of site %q does not list one", p.Job.Site)
	case 1:
		p.assume("GPUs are %s, the only type in the profile of %s: --gpu", names[0], p.Job.Site)
		return names[0], nil
	}
	return "", p.unknownGPU("unknown GPU: site %q has %s; the partition, QOS, or constraint selects one", p.Job.Site, strings.Join(names, "; "))
}

func (p *predictor) unknownGPU(format string, args ...any) error {
	return exitcode.Usagef(`set it with --gpu, such as --gpu "A100 80 GB"; supported: `+strings.Join(plan.GPUNames(), ", "),
		"plan %q: "+format, append([]any{p.Path}, args...)...)
}

// setMachine sets the speed of ranks and of the links between them.
func (p *predictor) setMachine(ctx context.Context) error {
	m := &p.machine
	m.PerNode = p.Job.TasksPerNode()
	if p.Here {
		m.PerNode, m.Cores = maxRanksHere, runtime.GOMAXPROCS(0)
		m.Threads = m.Cores // the ranks share them
		if p.Job.IsSet("slurm.cpus_per_task") && !p.Job.SharesCores() {
			m.Threads = min(int(p.Job.Slurm.CPUsPerTask), m.Cores)
		}
	} else {
		m.Threads = p.threads()
	}
	p.program = cpuProgram
	p.program.Threads, p.program.Copies = m.Threads, p.Job.Checkpoint.Async
	if p.gpu != nil {
		p.program = gpuProgram // async checkpoints copy to host memory
	}
	measured := p.Measure || p.Here
	switch {
	case p.gpu != nil:
		m.FLOPS, m.Bandwidth = plan.Utilization*p.gpu.Single, p.gpu.Bandwidth
		if t := p.Job.Train; t.Precision == jobs.PrecisionBF16 {
			m.FLOPS = plan.Utilization * p.gpu.Half
		}
		m.Local, m.Network = plan.Link{Latency: gpuLatency, Bandwidth: p.gpu.Link}, assumedFabric
	case measured:
		if err := p.measure(ctx); err != nil {
			return err
		}
		m.CPUCopies, m.Network = true, assumedNetwork
	default:
		m.FLOPS, m.Bandwidth = assumedCoreFLOPS*float64(m.Threads), assumedCoreBandwidth*float64(m.Threads)
		m.CPUCopies, m.Local, m.Network = true, assumedLocal, assumedNetwork
	}
	rate := float64(p.Site.Network.Rate) / 8 * gigabyte
	if rate > 0 {
		m.Network.Bandwidth = rate
	}
	speed := "%.6g GFLOP/s per rank: --gflops, or --measure"
	if p.gpu != nil {
		speed = fmt.Sprintf("%%.6g GFLOP/s per rank, %.0f%%%% of the peak rate of the GPU: --gflops", 100*plan.Utilization)
	}
	p.override(p.GFLOPS, gigabyte, &m.FLOPS, measured, speed)
	p.override(p.LocalBandwidth, gigabyte, &m.Local.Bandwidth, measured, "%.4g GB/s within a node: --local-bandwidth")
	p.override(p.LocalLatency, microsecond, &m.Local.Latency, measured, "%.4g us latency within a node: --local-latency")
	p.override(p.Bandwidth, gigabyte, &m.Network.Bandwidth, p.Here || rate > 0, "%.4g GB/s between nodes, per node: --bandwidth")
	p.override(p.Latency, microsecond, &m.Network.Latency, p.Here, "%.4g us latency between nodes: --latency")
	return nil
}

// threads returns the number of cores of each rank, or of the ranks with the fewest, for which the
// others wait. If the site's profile does not have the cores of a node, they are those of this machine.
func (p *predictor) threads() int {
	fewest, here, isAssumed := 0, runtime.GOMAXPROCS(0), false
	for _, part := range p.Job.SplitGroups() {
		n := int(part.Slurm.CPUsPerTask)
		if part.Slurm.CPUsPerTask == jobs.AllCores {
			r, _ := p.Site.ResourceOf(part)
			isAssumed = isAssumed || r.CPUsPerNode == 0
			n = max(1, cmp.Or(r.CPUsPerNode, here)/part.TasksPerNode())
		}
		if fewest == 0 || n < fewest {
			fewest = n
		}
	}
	if isAssumed && p.gpu == nil {
		p.assume("a node has as many cores as this machine, %d, and its ranks share them: slurm.cpus_per_task", here)
	}
	return fewest
}

// override sets *v to the value of a flag, in the flag's unit. Without the flag, it records *v
// as an assumption, unless the value is known.
func (p *predictor) override(given *float64, unit float64, v *float64, known bool, note string) {
	if given != nil {
		*v = *given * unit
	} else if !known {
		p.assume(note, *v/unit)
	}
}

// measure measures the speed of this machine.
func (p *predictor) measure(ctx context.Context) error {
	t, m := p.Job.Train, &p.machine
	threads := min(m.Threads, runtime.GOMAXPROCS(0))
	speed, err := measure.Compute(ctx, measure.Options{
		Model:  func() (nn.Model, error) { return p.data.model(&t.Model) },
		Sample: p.data.sample, Batch: t.Batch, Precision: p.data.precision, Threads: threads,
		Memory: availableMemory(), Element: p.training.Element,
		Update: func(d device.Device, params []*nn.Param) (func(), error) { return updater(d, params, t.Optimizer) },
	})
	if err != nil {
		return err
	}
	if m.Local, err = measure.Messages(ctx); err != nil {
		return err
	}
	more := float64(m.Threads) / float64(threads)
	m.FLOPS, m.Bandwidth = speed.FLOPS*more, speed.Bandwidth*more
	p.training.Element.UpdateFLOP = 0 // the measured bandwidth includes the matmuls of updates
	if more > 1 {
		p.assume("the %d cores of a rank are %.3gx as fast as the %d cores of this machine", m.Threads, more, threads)
	}
	if !p.Here {
		p.assume("nodes are as fast as this machine")
	}
	return nil
}

// updater returns a function that runs an optimizer step. The learning rate is 0, so that the
// parameters do not change.
func updater(d device.Device, params []*nn.Param, o jobs.Optimizer) (func(), error) {
	o.LR = 0
	rule, err := trainer.NewOptimizer(d, params, &o)
	if err != nil {
		return nil, err
	}
	return func() {
		optim.GradNorm(d, params)
		rule.Step(params, 1)
	}, nil
}

// memoryLimit returns the memory limit of a rank, in bytes, and its source. The limit is 0 if
// it is unknown.
func (p *predictor) memoryLimit() (float64, string) {
	perNode := float64(p.Job.TasksPerNode())
	resource, _ := p.Site.ResourceOf(p.Job)
	switch {
	case p.Memory != "":
		return float64(p.Memory.Bytes()), "--memory"
	case p.gpu != nil:
		return p.gpu.Memory, "the memory of one " + p.gpu.Name
	case p.Here:
		return availableMemory() / float64(p.Job.Ranks()), fmt.Sprintf("free memory of this machine, shared by %s", format.Count(p.Job.Ranks(), "rank"))
	case p.Job.Slurm.Memory.Bytes() > 0:
		return float64(p.Job.Slurm.Memory.Bytes()) / perNode, fmt.Sprintf("slurm.mem = %q, shared by %s", p.Job.Slurm.Memory, format.Count(int(perNode), "rank"))
	case p.Job.Slurm.MemoryPerCPU != "" && p.Job.Slurm.CPUsPerTask > 0:
		return float64(p.Job.Slurm.MemoryPerCPU.Bytes()) * float64(p.Job.Slurm.CPUsPerTask), fmt.Sprintf("slurm.mem_per_cpu = %q, for the cores of a rank", p.Job.Slurm.MemoryPerCPU)
	case p.Job.Slurm.MemoryPerGPU != "":
		return float64(p.Job.Slurm.MemoryPerGPU.Bytes()) * float64(p.Job.Slurm.GPUsPerNode) / perNode, fmt.Sprintf("slurm.mem_per_gpu = %q, for the GPUs of a rank", p.Job.Slurm.MemoryPerGPU)
	case resource.Memory.Bytes() > 0:
		return float64(resource.Memory.Bytes()) / perNode, fmt.Sprintf("the %s of a node, shared by %s", resource.Memory, format.Count(int(perNode), "rank"))
	}
	return 0, ""
}

// availableMemory returns the available memory of this machine, in bytes. It returns 0 if it
// is unknown.
func availableMemory() float64 {
	if bytes, known := cpu.Available(); known {
		return float64(bytes)
	}
	return 0
}
