package tests

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/slurm"
)

var update = flag.Bool("update", false, "rewrite recorded files")

// recorded is the directory with the recorded environments that the unit tests of package slurm
// read.
const recorded = "../slurm/testdata/environ"

// A process is a recorded process: its environment, and the name of its host, which does not come
// from the environment.
type process struct {
	host string
	env  map[string]string
}

func (p process) lookup(name string) (string, bool) {
	v, ok := p.env[name]
	return v, ok
}

// recorder writes a program that records the environment of its own process, and returns the path
// of the program.
func recorder(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "record")
	text := fmt.Sprintf("#!/bin/sh\nset -e\nf=$(mktemp %s.part.XXXXXX)\nenv -0 >$f\nmv $f %[1]s.$1@$(hostname).${f##*.}\n", name)
	writeExecutable(t, name, []byte(text))
	return name
}

// waitForRecordings waits until n processes have been recorded under a name, and returns them.
func waitForRecordings(t *testing.T, record, name string, n int) []process {
	t.Helper()
	var files []string
	waitUntil(t, fmt.Sprintf("%d recordings of %s", n, name), func() bool {
		files, _ = filepath.Glob(record + "." + name + "@*")
		return len(files) >= n
	})
	var processes []process
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		_, host, _ := strings.Cut(filepath.Base(f), "@")
		host, _, _ = strings.Cut(host, ".")
		p := process{host, make(map[string]string)}
		for entry := range bytes.SplitSeq(bytes.TrimSuffix(text, []byte{0}), []byte{0}) {
			key, value, _ := strings.Cut(string(entry), "=")
			if key == "CUDA_VISIBLE_DEVICES" || slices.ContainsFunc([]string{"SLURM_", "SLURMD_", "SBATCH_"},
				func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
				p.env[key] = value
			}
		}
		processes = append(processes, p)
	}
	if len(processes) != n {
		t.Fatalf("%d processes recorded %s; want %d", len(processes), name, n)
	}
	return processes
}

// fixture compares the variables that package slurm reads from a process's environment with the
// recorded file. With -update, it writes the file.
func (s shot) fixture(t *testing.T, name string, p process, plain func(map[string]string) map[string]string) {
	t.Helper()
	file := filepath.Join(recorded, name+".env")
	env := plain(p.env)
	if *update {
		var b strings.Builder
		for _, key := range slices.Sorted(maps.Keys(env)) {
			fmt.Fprintf(&b, "%s=%s\n", key, env[key])
		}
		if err := os.MkdirAll(recorded, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	was := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		was[key] = value
	}
	read := make(map[string]bool)
	noting := func(key string) (string, bool) {
		read[key] = true
		return p.lookup(key)
	}
	_, _ = slurm.TaskFromEnv(noting)          // the result is checked above
	_, _, _ = slurm.AllocationFromEnv(noting) // checked above
	for _, key := range slices.Sorted(maps.Keys(read)) {
		before, had := was[key]
		now, has := env[key]
		if had != has || before != now {
			t.Errorf("%s is %q (set: %v); in %s, %q (set: %v)", key, now, has, file, before, had)
		}
	}
}

var (
	jobID   = regexp.MustCompile(`^SLURM_(ARRAY_)?JOB_?ID(_(HET|PACK)_GROUP_\d+)?$`)
	network = regexp.MustCompile(`\b10\.10\.\d+\.`)
	port    = regexp.MustCompile(`_PORT$`)
)

// newNormalizer returns a function that replaces values that differ between runs: job IDs become
// 1000 and up in their order, and ports, process IDs, and directories become constants.
func newNormalizer(shots map[string][]process) func(map[string]string) map[string]string {
	ids := make(map[int]bool)
	for _, processes := range shots {
		for _, p := range processes {
			for key, value := range p.env {
				if n, err := strconv.Atoi(value); err == nil && jobID.MatchString(key) {
					ids[n] = true
				}
			}
		}
	}
	order := slices.Sorted(maps.Keys(ids))
	fixed := map[string]string{
		"SLURM_CONF": "/etc/slurm/slurm.conf", "SLURM_SUBMIT_DIR": "/home/ada", "SLURM_TASK_PID": "4000",
		"SLURM_CLUSTER_NAME": "test", "SLURM_WORKING_CLUSTER": "test:10.10.0.253:6817:9728:109",
		"SLURM_HOSTFILE": "/home/ada/hosts",
	}
	return func(env map[string]string) map[string]string {
		out := make(map[string]string)
		for key, value := range env {
			switch n, err := strconv.Atoi(value); {
			case fixed[key] != "":
				value = fixed[key]
			case key == "SLURM_SUBMIT_HOST" && !strings.HasPrefix(value, "n"):
				value = "login"
			case port.MatchString(key):
				value = "40000"
			case err == nil && jobID.MatchString(key):
				value = strconv.Itoa(1000 + slices.Index(order, n))
			default:
				value = network.ReplaceAllString(value, "10.10.0.")
			}
			out[key] = value
		}
		return out
	}
}
