package usage

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/jobs/process"
)

// maxDepth is the maximum number of processes between a process and the process of its rank that
// has a RANK.
const maxDepth = 64

// noRank is the rank of a process that does not belong to a rank.
const noRank = -1

// A proc is a process at the time of a sample.
type proc struct {
	process.Stat
	memory, shared int64 // bytes
}

// ticksPerSecond is the unit of times in /proc on all architectures of Linux that Go supports.
const ticksPerSecond = 100

// parseStatm returns the resident memory and its shared part from /proc/PID/statm, in pages.
func parseStatm(text []byte) (resident, shared int64, err error) {
	f := bytes.Fields(text)
	if len(f) < 3 {
		return 0, 0, fmt.Errorf("/proc/PID/statm has %d fields", len(f))
	}
	resident, err = strconv.ParseInt(string(f[1]), 10, 48)
	if err != nil {
		return 0, 0, err
	}
	shared, err = strconv.ParseInt(string(f[2]), 10, 48)
	return resident, min(shared, resident), err
}

// A scanner finds the processes of ranks. It reads the environment of a process at most maxReads
// times.
type scanner struct {
	run   process.Run
	known map[int]knownProcess
}

type knownProcess struct {
	start uint64
	rank  int
	reads int // of the environment
}

// maxReads is the maximum number of reads of the environment of a process without a rank. A process
// that has not yet called exec has the environment of its parent.
const maxReads = 4

// scan returns the processes of each rank.
func (s *scanner) scan() map[int][]proc {
	stats, err := process.All()
	if err != nil {
		return nil
	}
	all := map[int]proc{}
	for _, s := range stats {
		all[s.PID] = proc{Stat: s}
	}
	known := map[int]knownProcess{}
	for pid, p := range all {
		k, ok := s.known[pid]
		if !ok || k.start != p.Start {
			k = knownProcess{start: p.Start, rank: noRank}
		}
		if k.rank == noRank && k.reads < maxReads {
			k.rank, k.reads = s.readRank(pid), k.reads+1
		}
		known[pid] = k
	}
	s.known = known
	ranks := map[int][]proc{}
	for pid, p := range all {
		rank := rankOf(pid, all, known)
		if rank == noRank || len(ranks) >= maxRanks && ranks[rank] == nil {
			continue
		}
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)); err == nil {
			if resident, shared, err := parseStatm(text); err == nil {
				p.memory, p.shared = resident*int64(os.Getpagesize()), shared*int64(os.Getpagesize())
			}
		}
		ranks[rank] = append(ranks[rank], p)
	}
	return ranks
}

// rankOf returns the rank of a process, or of the next process above it that has one.
func rankOf(pid int, all map[int]proc, known map[int]knownProcess) int {
	for range maxDepth {
		p, ok := all[pid]
		if !ok {
			break
		}
		if k := known[pid]; k.rank != noRank {
			return k.rank
		}
		pid = p.Parent
	}
	return noRank
}

// readRank returns the rank of a process by its environment.
func (s *scanner) readRank(pid int) int {
	if rank, _, ok := s.run.Rank(pid); ok {
		return rank
	}
	return noRank
}

// A tally sums the samples of one rank.
type tally struct {
	start     uint64 // of the first process, in ticks since boot
	cores     int
	cpu       uint64 // ticks in all samples
	last      uint64 // ticks in the last sample
	at        time.Duration
	peak      float64
	samples   int
	memory    float64 // sum over the samples
	most      int64
	processes int
}

// minPeak is the minimum time between two samples for a peak.
const minPeak = time.Second / 2

// add adds a sample of the processes of the rank at a time since boot.
func (t *tally) add(processes []proc, at time.Duration) {
	var ticks uint64
	var private, shared int64
	for _, p := range processes {
		ticks += p.CPU
		private += p.memory - p.shared
		shared = max(shared, p.shared)
		if t.start == 0 || p.Start < t.start {
			t.start = p.Start
		}
	}
	switch {
	case t.samples == 0:
		t.cpu = ticks
	case ticks > t.last: // less if a process has ended and its parent did not wait for it
		t.cpu += ticks - t.last
	}
	// The peak in the first sample is the mean since the start of the process.
	used, since := ticks-min(t.last, ticks), at-t.at
	if t.samples == 0 {
		used, since = ticks, at-ticksDuration(t.start)
	}
	if since >= minPeak {
		t.peak = max(t.peak, ticksDuration(used).Seconds()/since.Seconds())
	}
	t.last, t.at = ticks, at
	t.samples++
	t.memory += float64(private + shared)
	t.most = max(t.most, private+shared)
	t.processes = max(t.processes, len(processes))
}

func ticksDuration(ticks uint64) time.Duration {
	return time.Duration(ticks) * (time.Second / ticksPerSecond)
}

// rank returns the measurements of the rank.
func (t *tally) rank(number int) Rank {
	r := Rank{Rank: number, Cores: t.cores, CPUPeak: t.peak, MemoryMean: int64(t.memory / float64(t.samples)), MemoryPeak: t.most, Processes: t.processes}
	if lived := t.at - ticksDuration(t.start); lived > 0 {
		r.CPUMean = ticksDuration(t.cpu).Seconds() / lived.Seconds()
		r.CPUPeak = max(r.CPUPeak, r.CPUMean)
	}
	return r
}

// uptime returns the time since boot, in the clock of the start times in /proc.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// countCores returns the number of cores that a process may use, or 0 if it is unknown.
func countCores(pid int) int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &set); err != nil {
		return 0
	}
	return set.Count()
}
