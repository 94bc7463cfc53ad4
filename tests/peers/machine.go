package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
)

// machine describes the machine of the measurements.
type machine struct {
	CPU     string `json:"cpu"`
	Cores   int    `json:"cores"`
	Memory  int64  `json:"memory"` // bytes
	Program string `json:"program"`
	Torch   string `json:"torch"`
	BLAS    string `json:"blas"`
	// NoCompiler is the reason why torch.compile does not work, or "".
	NoCompiler string `json:"no_compiler,omitempty"`
}

// describe inspects the machine and both programs, and selects the core.
func (r *runner) describe(ctx context.Context) (machine, error) {
	m := machine{Cores: runtime.NumCPU()}
	var err error
	if m.CPU, err = proc("cpuinfo", `(?m)^model name\s*:\s*(.+)$`); err != nil {
		return m, err
	}
	kB, err := proc("meminfo", `(?m)^MemTotal:\s*(\d+) kB$`)
	if err != nil {
		return m, err
	}
	n, err := strconv.ParseInt(kB, 10, 64)
	if err != nil {
		return m, fmt.Errorf("read memory: %w", err)
	}
	m.Memory = n << 10
	// The last core, because the first one handles most interrupts.
	if r.core, err = proc("self/status", `(?m)^Cpus_allowed_list:.*?(\d+)$`); err != nil {
		return m, err
	}
	version, err := r.run(ctx, r.program, []string{"version"})
	if err != nil {
		return m, err
	}
	m.Program = strings.TrimSpace(string(version))
	about, err := r.runScript(ctx, []string{"about.py"})
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(about, &m); err != nil {
		return m, err
	}
	r.compile = m.NoCompiler == ""
	return m, nil
}

// proc returns the match of a pattern in a file of /proc.
func proc(file, pattern string) (string, error) {
	text, err := os.ReadFile("/proc/" + file)
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(pattern).FindSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("read /proc/%s: no match for %q", file, pattern)
	}
	return string(m[1]), nil
}
