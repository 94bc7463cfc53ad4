package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
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
func (l *planner) findGPU() (*plan.GPU, error) {
	c := l.cmd
	if l.job.Slurm.GPUsPerNode == 0 && c.GPU == "" {
		return nil, nil
	}
	if c.Measure || c.Here {
		return nil, usage("--measure and --here measure CPUs only, and the job requests GPUs; set the speed of a GPU with --gflops")
	}
	name, err := c.GPU, error(nil)
	if name == "" {
		if name, err = l.siteGPU(); err != nil {
			return nil, err
		}
	}
	g, ok := plan.FindGPU(name)
	if !ok {
		return nil, l.unknownGPU("unknown GPU %q", name)
	}
	l.assume("one GPU per rank")
	return &g, nil
}

// siteGPU returns the GPU type of the job's partition, QOS, and constraint in the site
// profile. If they do not select one, it returns the only GPU type of the profile.
func (l *planner) siteGPU() (string, error) {
	site := l.file.site
	if r, ok := site.ResourceOf(l.job); ok && r.GPUs != "" {
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
		return "", l.unknownGPU("unknown GPU: the profile of site %q does not list one", l.job.Site)
	case 1:
		l.assume("GPUs are %s, the only type in the profile of %s: --gpu", names[0], l.job.Site)
		return names[0], nil
	}
	return "", l.unknownGPU("unknown GPU: site %q has %s; the partition, QOS, or constraint selects one", l.job.Site, strings.Join(names, "; "))
}

func (l *planner) unknownGPU(format string, args ...any) error {
	return exitError{exitUsage, hints.Add(fmt.Errorf("plan %q: "+format, append([]any{l.cmd.Job}, args...)...),
		`set it with --gpu, such as --gpu "A100 80 GB"; supported: `+strings.Join(plan.GPUNames(), ", "))}
}

// setMachine sets the speed of ranks and of the links between them.
func (l *planner) setMachine(ctx context.Context) error {
	c := l.cmd
	m := &l.machine
	m.PerNode, m.Threads = l.job.TasksPerNode(), int(l.job.Slurm.CPUsPerTask)
	if c.Here {
		m.PerNode, m.Cores = maxRanksHere, runtime.GOMAXPROCS(0)
		m.Threads = min(m.Threads, m.Cores)
		if !l.job.IsSet("slurm.cpus_per_task") {
			m.Threads = m.Cores // the ranks share them
		}
	}
	l.program = cpuProgram
	l.program.Threads, l.program.Copies = m.Threads, l.job.Checkpoint.Async
	if l.gpu != nil {
		l.program = gpuProgram // async checkpoints copy to host memory
	}
	measured := c.Measure || c.Here
	switch {
	case l.gpu != nil:
		m.FLOPS, m.Bandwidth = plan.Utilization*l.gpu.Single, l.gpu.Bandwidth
		if t := l.job.Train; t.Precision == jobs.PrecisionBF16 {
			m.FLOPS = plan.Utilization * l.gpu.Half
		}
		m.Local, m.Network = plan.Link{Latency: gpuLatency, Bandwidth: l.gpu.Link}, assumedFabric
	case measured:
		if err := l.measure(ctx); err != nil {
			return err
		}
		m.CPUCopies, m.Network = true, assumedNetwork
	default:
		m.FLOPS, m.Bandwidth = assumedCoreFLOPS*float64(m.Threads), assumedCoreBandwidth*float64(m.Threads)
		m.CPUCopies, m.Local, m.Network = true, assumedLocal, assumedNetwork
	}
	rate := float64(l.file.site.Network.Rate) / 8 * gigabyte
	if rate > 0 {
		m.Network.Bandwidth = rate
	}
	speed := "%.6g GFLOP/s per rank: --gflops, or --measure"
	if l.gpu != nil {
		speed = fmt.Sprintf("%%.6g GFLOP/s per rank, %.0f%%%% of the peak rate of the GPU: --gflops", 100*plan.Utilisation)
	}
	l.override(c.GFLOPS, gigabyte, &m.FLOPS, measured, speed)
	l.override(c.LocalBandwidth, gigabyte, &m.Local.Bandwidth, measured, "%.4g GB/s within a node: --local-bandwidth")
	l.override(c.LocalLatency, microsecond, &m.Local.Latency, measured, "%.4g us latency within a node: --local-latency")
	l.override(c.Bandwidth, gigabyte, &m.Network.Bandwidth, c.Here || rate > 0, "%.4g GB/s between nodes, per node: --bandwidth")
	l.override(c.Latency, microsecond, &m.Network.Latency, c.Here, "%.4g us latency between nodes: --latency")
	return nil
}

// override sets *v to the value of a flag, in the flag's unit. Without the flag, it records *v
// as an assumption, unless the value is known.
func (l *planner) override(given *float64, unit float64, v *float64, known bool, note string) {
	if given != nil {
		*v = *given * unit
	} else if !known {
		l.assume(note, *v/unit)
	}
}

// measure measures the speed of this machine.
func (l *planner) measure(ctx context.Context) error {
	t, m := l.job.Train, &l.machine
	threads := min(m.Threads, runtime.GOMAXPROCS(0))
	speed, err := measure.Compute(ctx, measure.Options{
		Model:  func() (nn.Model, error) { return trainerModel(l.subject, t) },
		Sample: l.subject.sample, Batch: int(t.Batch), Precision: l.subject.precision, Threads: threads,
		Memory: availableMemory(), Element: l.training.Element,
		Update: func(d device.Device, params []*nn.Param) (func(), error) { return updater(d, params, &t.Optimizer) },
	})
	if err != nil {
		return err
	}
	if m.Local, err = measure.Messages(ctx); err != nil {
		return err
	}
	more := float64(m.Threads) / float64(threads)
	m.FLOPS, m.Bandwidth = speed.FLOPS*more, speed.Bandwidth*more
	if more > 1 {
		l.assume("the %d cores of a rank are %.3gx as fast as the %d cores of this machine", m.Threads, more, threads)
	}
	if !l.cmd.Here {
		l.assume("nodes are as fast as this machine")
	}
	return nil
}

func trainerModel(s subject, t *jobs.Train) (nn.Model, error) {
	return trainer.NewModel(&t.Model, s.shape)
}

// updater returns a function that runs an optimizer step. The learning rate is 0, so that the
// parameters do not change.
func updater(d device.Device, params []*nn.Param, o *jobs.Optimizer) (func(), error) {
	var rule optim.Optimizer
	var err error
	if moments(o) == 2 {
		rule, err = optim.NewAdamW(d, params, optim.AdamOptions{Beta1: .9, Beta2: .999, Eps: 1e-8})
	} else {
		rule, err = optim.NewSGD(d, params, 0, float64(o.Momentum), 0, false)
	}
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
func (l *planner) memoryLimit() (float64, string) {
	perNode := float64(l.job.TasksPerNode())
	resource, _ := l.file.site.ResourceOf(l.job)
	switch {
	case l.cmd.Memory != "":
		return float64(jobs.Memory(l.cmd.Memory).Bytes()), "--memory"
	case l.gpu != nil:
		return l.gpu.Memory, "the memory of one " + l.gpu.Name
	case l.cmd.Here:
		return availableMemory() / float64(l.ranks()), fmt.Sprintf("free memory of this machine, shared by %s", format.Count(l.ranks(), "rank"))
	case l.job.Slurm.Memory.Bytes() > 0:
		return float64(l.job.Slurm.Memory.Bytes()) / perNode, fmt.Sprintf("slurm.mem = %q, shared by %s", l.job.Slurm.Memory, format.Count(int(perNode), "rank"))
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
