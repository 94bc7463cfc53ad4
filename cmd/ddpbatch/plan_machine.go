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

// What is taken where nobody has measured. Of processors: a core of a node with AVX2
// at half of its limit, memory that the ranks of a host share with others at work
// beside them, and Ethernet of 10 Gbit/s. Of GPUs: NCCL's latencies over NVLink and
// InfiniBand, and one adapter of 200 Gbit/s.
const (
	assumedCoreFLOPS     = 60 * gigabyte
	assumedCoreBandwidth = 10 * gigabyte
)

var (
	assumedLocal   = plan.Link{Latency: 5 * microsecond, Bandwidth: 8 * gigabyte}
	assumedNetwork = plan.Link{Latency: 50 * microsecond, Bandwidth: 1.25 * gigabyte}
	assumedFabric  = plan.Link{Latency: 6 * microsecond, Bandwidth: 25 * gigabyte}
)

// maxHere is more ranks than fit on one machine.
const maxHere = 1 << 24

// gpuLatency is of a message between the GPUs of a node.
const gpuLatency = 3 * microsecond

// What a rank needs beside its tensors: the program and its workspaces, or on a GPU
// the driver's context and the libraries'.
var (
	cpuProgram = plan.Program{Fixed: 32 << 20, PerThread: 8 << 20}
	gpuProgram = plan.Program{Fixed: 1 << 30}
)

// findGPU is the GPU that the job asks for; nil if it asks for none.
func (l *planner) findGPU() (*plan.GPU, error) {
	c := l.cmd
	if l.job.Slurm.GPUsPerNode == 0 && c.GPU == "" {
		return nil, nil
	}
	if c.Measure || c.Here {
		return nil, usage("--measure and --here are for processors, and the job asks for GPUs; --gflops says how fast one is")
	}
	name, err := c.GPU, error(nil)
	if name == "" {
		if name, err = l.siteGPU(); err != nil {
			return nil, err
		}
	}
	g, ok := plan.FindGPU(name)
	if !ok {
		return nil, l.unknownGPU("nothing is known of the GPU %q", name)
	}
	l.assume("a rank computes on one GPU")
	return &g, nil
}

// siteGPU is what the site's profile says of the GPUs that the job gets: of its
// partition, QoS and constraint, or else the only ones that it names.
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
		return "", l.unknownGPU("which GPU the job gets is not known: the profile of site %q names none", l.job.Site)
	case 1:
		l.assume("GPUs are %s, the only ones that the profile of %s names: --gpu", names[0], l.job.Site)
		return names[0], nil
	}
	return "", l.unknownGPU("which GPU the job gets is not known: the site has %s, by partition, QoS or constraint", strings.Join(names, "; "))
}

func (l *planner) unknownGPU(format string, args ...any) error {
	return exitError{exitUsage, hints.Add(fmt.Errorf("plan %q: "+format, append([]any{l.cmd.Job}, args...)...),
		`name it: --gpu "A100 80 GB"; known: `+strings.Join(plan.GPUNames(), ", "))}
}

// setMachine finds how fast ranks are and what connects them.
func (l *planner) setMachine(ctx context.Context) error {
	c := l.cmd
	m := &l.machine
	m.PerNode, m.Threads = l.job.TasksPerNode(), int(l.job.Slurm.CPUsPerTask)
	if c.Here {
		m.PerNode, m.Cores = maxHere, runtime.GOMAXPROCS(0)
		m.Threads = min(m.Threads, m.Cores)
		if !l.job.Gives("slurm.cpus_per_task") {
			m.Threads = m.Cores // which ranks divide among them
		}
	}
	l.program = cpuProgram
	l.program.Threads, l.program.Copies = m.Threads, l.job.Checkpoint.Async
	if l.gpu != nil {
		l.program = gpuProgram // copies are in the host's memory
	}
	measured := c.Measure || c.Here
	switch {
	case l.gpu != nil:
		m.FLOPS, m.Bandwidth = plan.Utilisation*l.gpu.Single, l.gpu.Bandwidth
		if t := l.job.Train; t.Precision == jobs.PrecisionBF16 {
			m.FLOPS = plan.Utilisation * l.gpu.Half
		}
		m.Local, m.Network = plan.Link{Latency: gpuLatency, Bandwidth: l.gpu.Link}, assumedFabric
	case measured:
		if err := l.measure(ctx); err != nil {
			return err
		}
		m.Copying, m.Network = true, assumedNetwork
	default:
		m.FLOPS, m.Bandwidth = assumedCoreFLOPS*float64(m.Threads), assumedCoreBandwidth*float64(m.Threads)
		m.Copying, m.Local, m.Network = true, assumedLocal, assumedNetwork
	}
	rate := float64(l.file.site.Network.Rate) / 8 * gigabyte
	if rate > 0 {
		m.Network.Bandwidth = rate
	}
	speed := "%.6g GFLOP/s of a rank: --gflops, or --measure"
	if l.gpu != nil {
		speed = fmt.Sprintf("%%.6g GFLOP/s of a rank, %.0f%%%% of the GPU's limit: --gflops", 100*plan.Utilisation)
	}
	l.override(c.GFLOPS, gigabyte, &m.FLOPS, measured, speed)
	l.override(c.LocalBandwidth, gigabyte, &m.Local.Bandwidth, measured, "%.4g GB/s within a node: --local-bandwidth")
	l.override(c.LocalLatency, microsecond, &m.Local.Latency, measured, "%.4g us for a message within a node: --local-latency")
	l.override(c.Bandwidth, gigabyte, &m.Network.Bandwidth, c.Here || rate > 0, "%.4g GB/s between nodes, of each: --bandwidth")
	l.override(c.Latency, microsecond, &m.Network.Latency, c.Here, "%.4g us for a message between nodes: --latency")
	return nil
}

// override takes what a flag gives in its unit; else what is there is an
// assumption, unless it is known.
func (l *planner) override(given *float64, unit float64, v *float64, known bool, note string) {
	if given != nil {
		*v = *given * unit
	} else if !known {
		l.assume(note, *v/unit)
	}
}

// measure takes this machine's speeds.
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
		l.assume("%d cores of a rank are %.3g times as fast as the %d here", m.Threads, more, threads)
	}
	if !l.cmd.Here {
		l.assume("nodes are as fast as this machine")
	}
	return nil
}

func trainerModel(s subject, t *jobs.Train) (nn.Model, error) {
	return trainer.NewModel(&t.Model, s.shape)
}

// updater is what a step does after the backward pass, without changing weights.
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

// memoryLimit is the bytes that a rank may take, 0 if that is not known, and what
// they are.
func (l *planner) memoryLimit() (float64, string) {
	perNode := float64(l.job.TasksPerNode())
	resource, _ := l.file.site.ResourceOf(l.job)
	switch {
	case l.cmd.Memory != "":
		return float64(jobs.Memory(l.cmd.Memory).Bytes()), "--memory"
	case l.gpu != nil:
		return l.gpu.Memory, "the memory of one " + l.gpu.Name
	case l.cmd.Here:
		return availableMemory() / float64(l.ranks()), fmt.Sprintf("free memory of this machine for each of %s", format.Count(l.ranks(), "rank"))
	case l.job.Slurm.Memory.Bytes() > 0:
		return float64(l.job.Slurm.Memory.Bytes()) / perNode, fmt.Sprintf("slurm.mem = %q for each of %s", l.job.Slurm.Memory, format.Count(int(perNode), "rank"))
	case resource.Memory.Bytes() > 0:
		return float64(resource.Memory.Bytes()) / perNode, fmt.Sprintf("a node's %s for each of %s", resource.Memory, format.Count(int(perNode), "rank"))
	}
	return 0, ""
}

// availableMemory is the bytes that this machine has left; 0 if that is not known.
func availableMemory() float64 {
	if bytes, known := cpu.Available(); known {
		return float64(bytes)
	}
	return 0
}
