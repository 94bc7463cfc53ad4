package usage

import (
	"cmp"
	"context"
	"encoding/json"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/jobs/process"
)

const (
	// firstInterval is the time to the first sample. Intervals double up to maxInterval.
	firstInterval = time.Second
	maxInterval   = 10 * time.Second
	// costFactor is the minimum ratio of the interval to the CPU time of a sample.
	costFactor = 200
	// gpuInterval is the interval of the calls of nvidia-smi or rocm-smi.
	gpuInterval = 30 * time.Second
	// writeInterval is the minimum time between two writes of the file, after quickWrites.
	writeInterval = time.Minute
	quickWrites   = 6
	// stopTimeout limits the last write.
	stopTimeout = 2 * time.Second
)

// Options describe what to measure.
type Options struct {
	Run     string   // ID of the run
	Node    Node     // with the index, the host, and the attempt
	Ranks   int      // number of ranks on the node
	Environ []string // of this process
	// Write replaces the file of the node.
	Write func(text []byte) error
}

// A sampler measures the ranks of one node.
type sampler struct {
	o     Options
	scan  scanner
	first time.Duration // of the first interval

	mu      sync.Mutex
	ranks   map[int]*tally
	gpus    map[int]*gpuTally
	samples int
	time    time.Time
}

// Start measures until stop is called. stop waits up to 2 s for the last write.
func Start(o Options) (stop func()) { return start(o, firstInterval) }

func start(o Options, first time.Duration) (stop func()) {
	node, _ := environ.Lookup(o.Environ, process.NodeVariable)
	s := &sampler{o: o, scan: scanner{run: process.Run{ID: o.Run, Node: node}}, first: first, ranks: map[int]*tally{}, gpus: map[int]*gpuTally{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.run(ctx)
	}()
	go s.runGPUs(ctx)
	return func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(stopTimeout): // the file system does not respond
		}
	}
}

// run reads the processes until ctx is done.
func (s *sampler) run(ctx context.Context) {
	runtime.LockOSThread() // for threadTime
	interval, writes := s.first, 0
	var written time.Time
	for {
		select {
		case <-ctx.Done():
			if s.hasSamples() {
				_ = s.write()
			}
			return
		case <-time.After(interval):
		}
		before := threadTime()
		s.add(s.scan.scan(), uptime(), time.Now())
		interval = max(min(2*interval, maxInterval), costFactor*(threadTime()-before))
		if s.hasSamples() && (writes < quickWrites || time.Since(written) >= writeInterval) {
			_ = s.write() // the run directory may be unavailable for a while
			writes, written = writes+1, time.Now()
		}
	}
}

// threadTime returns the CPU time of this thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

func (s *sampler) hasSamples() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ranks) > 0
}

// add adds a sample of all ranks at a time since boot.
func (s *sampler) add(ranks map[int][]proc, at time.Duration, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(ranks) > 0 {
		s.samples, s.time = s.samples+1, now
	}
	for rank, processes := range ranks {
		t := s.ranks[rank]
		if t == nil {
			if len(s.ranks) >= maxRanks {
				continue
			}
			t = &tally{}
			s.ranks[rank] = t
		}
		if t.cores == 0 {
			oldest := slices.MinFunc(processes, func(a, b proc) int { return cmp.Compare(a.Start, b.Start) })
			t.cores = countCores(oldest.PID)
		}
		t.add(processes, at)
	}
}

// runGPUs reads the GPUs until ctx is done, or until the tools fail.
func (s *sampler) runGPUs(ctx context.Context) {
	tools := slices.DeleteFunc(slices.Clone(gpuTools), func(g gpuTool) bool {
		_, err := environ.LookPath(s.o.Environ, g.name)
		return err != nil
	})
	failures := map[string]int{}
	for wait := 4 * s.first; len(tools) > 0; wait = gpuInterval {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		for _, tool := range tools {
			gpus, err := tool.readGPUs(ctx, s.o.Environ)
			if err != nil {
				failures[tool.name]++
				continue
			}
			s.addGPUs(tool, gpus)
			tools, failures = []gpuTool{tool}, map[string]int{}
			break
		}
		tools = slices.DeleteFunc(tools, func(g gpuTool) bool { return failures[g.name] >= maxToolFailures })
	}
}

func (s *sampler) addGPUs(tool gpuTool, gpus []gpuSample) {
	for _, name := range tool.visible {
		if list, ok := environ.Lookup(s.o.Environ, name); ok {
			gpus = selectVisible(gpus, list, s.o.Ranks)
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range gpus {
		t := s.gpus[g.index]
		if t == nil {
			if len(s.gpus) >= maxGPUs {
				continue
			}
			t = &gpuTally{}
			s.gpus[g.index] = t
		}
		t.add(g)
	}
}

// result returns the measurements so far.
func (s *sampler) result() Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.o.Node
	n.Time, n.Samples = s.time.UTC(), s.samples
	for rank, t := range s.ranks {
		n.Ranks = append(n.Ranks, t.rank(rank))
	}
	slices.SortFunc(n.Ranks, func(a, b Rank) int { return cmp.Compare(a.Rank, b.Rank) })
	for index, t := range s.gpus {
		n.GPUs = append(n.GPUs, t.gpu(index))
	}
	slices.SortFunc(n.GPUs, func(a, b GPU) int { return cmp.Compare(a.Index, b.Index) })
	return n
}

func (s *sampler) write() error {
	text, err := json.Marshal(s.result())
	if err != nil {
		return err
	}
	return s.o.Write(append(text, '\n'))
}
