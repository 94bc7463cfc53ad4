package doctor

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// limit is a line of /proc/PID/limits.
type limit struct{ soft, hard string }

// parseLimits parses /proc/PID/limits (proc(5)).
func parseLimits(text string) map[string]limit {
	all := map[string]limit{}
	for line := range strings.Lines(text) {
		// Names contain spaces, so use the fixed positions of the columns.
		if len(line) < 48 || strings.HasPrefix(line, "Limit ") {
			continue
		}
		if fields := strings.Fields(line[26:]); len(fields) >= 2 {
			all[strings.TrimSpace(line[:26])] = limit{fields[0], fields[1]}
		}
	}
	return all
}

// checkLimits checks the limits of the parent process. Go raises this process's own limit of open
// files to the hard limit. If the parent's limits cannot be read, it checks the limits of this
// process.
func checkLimits(rdma bool) []Finding {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", os.Getppid()))
	if err != nil {
		if text, err = os.ReadFile("/proc/self/limits"); err != nil {
			return []Finding{warn("limits", err.Error(), "run `ulimit -a` to see the limits")}
		}
	}
	return evaluateLimits(parseLimits(string(text)), rdma)
}

// Minimum limits for typical training runs.
const (
	minOpenFiles = 4096
	minProcesses = 4096
)

func evaluateLimits(all map[string]limit, rdma bool) []Finding {
	var found []Finding
	add := func(name, part string, evaluate func(n int64) Finding) {
		l, ok := all[name]
		if !ok {
			return
		}
		n, err := strconv.ParseInt(l.soft, 10, 64)
		if err != nil {
			n = 1<<63 - 1 // unlimited
		}
		f := evaluate(n)
		f.Part, f.Detail = "limit "+part, strings.TrimSuffix(l.soft+" (at most "+l.hard+"): "+f.Detail, ": ")
		found = append(found, f)
	}
	add("Max locked memory", "memlock", func(n int64) Finding {
		switch {
		case n == 1<<63-1:
			return pass("", "")
		case rdma && n < 1<<30:
			return fail("", "InfiniBand, RoCE, and GPUDirect need locked memory", "ask the center to set LimitMEMLOCK=infinity for slurmd, or run `ulimit -l unlimited` before you submit if PropagateResourceLimits is ALL")
		}
		return pass("", "enough without InfiniBand and RoCE")
	})
	add("Max open files", "nofile", func(n int64) Finding {
		return remarkIf(n < minOpenFiles, warn("", "data loaders with many workers and NCCL with many peers need more", "add `ulimit -n "+strconv.Itoa(minOpenFiles)+"` to setup.lines"))
	})
	add("Max processes", "nproc", func(n int64) Finding {
		return remarkIf(n < minProcesses, warn("", "threads count: OpenMP, data loaders, and NCCL start many", "set OMP_NUM_THREADS, use fewer workers, or ask the center for a higher limit"))
	})
	add("Max core file size", "core", func(n int64) Finding {
		if n == 0 {
			return pass("", "a crash writes no core file; run `ulimit -c unlimited` to get one")
		}
		return pass("", "a crash writes a core file per rank, as large as its memory")
	})
	return found
}
