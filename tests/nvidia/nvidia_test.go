package nvidia

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/kernels"
)

var update = flag.Bool("update", false, "rewrite the table of registers")

// need returns a file of NVIDIA, or skips the test. The table can only be updated with the file.
func need(t *testing.T, name string) string {
	t.Helper()
	file, err := File(name)
	if err != nil {
		t.Skipf("skipped: %v; run `go run ./tests/nvidia/fetch`", err)
	}
	return file
}

// TestDriverExportsAllFunctions checks that the driver exports a function for each line of
// driver.tbl.
func TestDriverExportsAllFunctions(t *testing.T) {
	f, err := elf.Open(need(t, Driver))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	exported := map[string]bool{}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			exported[s.Name] = true
		}
	}
	table, err := os.ReadFile("../../trainer/cuda/driver/driver.tbl")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range strings.Lines(string(table)) {
		fields := strings.SplitN(line, "|", 3)
		if strings.HasPrefix(line, "#") || len(fields) < 3 {
			continue
		}
		lines++
		name, symbols := strings.TrimSpace(fields[0]), strings.Split(strings.TrimSpace(fields[1]), ",")
		has := func(s string) bool { return exported[strings.Replace(strings.TrimSpace(s), "=", name, 1)] }
		if !slices.ContainsFunc(symbols, has) {
			t.Errorf("%s: the driver exports none of %q", name, symbols)
		}
	}
	if lines < 150 {
		t.Errorf("driver.tbl has %d functions, want at least 150", lines)
	}
}

// TestCallsOfCUBLASLt checks that cuBLASLt accepts each call of calls.c up to the heuristic.
func TestCallsOfCUBLASLt(t *testing.T) {
	library := need(t, CUBLASLt)
	program := filepath.Join(t.TempDir(), "lt")
	const calls = "../../trainer/cuda/blaslt"
	out, err := exec.CommandContext(t.Context(), "gcc", "-std=gnu11", "-Wall", "-Werror", "-I", calls, "-o", program, "testdata/lt.c", filepath.Join(calls, "calls.c"), "-ldl").CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("skipped: gcc not found")
	} else if err != nil {
		t.Fatalf("compile lt.c: %v\n%s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), program, library).CombinedOutput(); err != nil || !strings.Contains(string(out), ", 0 failures") {
		t.Errorf("%v\n%s", err, out)
	}
}

// A usage holds the resources that ptxas reports for a kernel.
type usage struct {
	registers int // per thread
	spilled   int // bytes, stores and loads
}

// A row identifies a kernel of the table.
type row struct{ arch, module, kernel string }

const tableFile = "testdata/ptxas-" + PTXASVersion + ".txt"

// TestRegisters checks that ptxas assembles all kernels, and that none needs many more registers or
// spills more than the table says. Registers are allocated in units of eight.
func TestRegisters(t *testing.T) {
	ptxas := need(t, PTXAS)
	got := map[row]usage{}
	for arch, modules := range map[string][]string{"sm_80": kernels.Modules(), "sm_90": kernels.Modules(), "sm_90a": kernels.HopperModules()} {
		for _, m := range modules {
			dir := t.TempDir()
			source := filepath.Join(dir, filepath.Base(m)+".ptx")
			if err := os.WriteFile(source, []byte(kernels.PTX(m)), 0o600); err != nil {
				t.Fatal(err)
			}
			c := exec.CommandContext(t.Context(), ptxas, "-v", "-arch="+arch, "-o", filepath.Join(dir, "cubin"), source)
			out, err := c.CombinedOutput()
			if err != nil {
				t.Fatalf("%s for %s: %v\n%s", m, arch, err, out)
			}
			if strings.Contains(string(out), "serialized") {
				t.Errorf("%s for %s: ptxas serializes wgmma:\n%s", m, arch, out)
			}
			for kernel, u := range parseUsage(out) {
				got[row{arch, m, kernel}] = u
			}
		}
	}
	if *update {
		if err := os.WriteFile(tableFile, format(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	table, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range compare(got, parseTable(t, table)) {
		t.Error(e + "; if this is intended, run `go test ./tests/nvidia -run TestRegisters -update`")
	}
}

// compare returns the differences that matter.
func compare(got, want map[row]usage) []string {
	const unit = 8
	var list []string
	for _, r := range slices.SortedFunc(maps.Keys(got), order) {
		g, w := got[r], want[r]
		if _, known := want[r]; !known {
			w = usage{registers: 255}
		}
		if g.spilled > w.spilled || g.registers > w.registers+unit {
			list = append(list, fmt.Sprintf("%s of %s on %s uses %d registers and spills %d bytes, want at most %d and %d", r.kernel, r.module, r.arch, g.registers, g.spilled, w.registers, w.spilled))
		}
	}
	return list
}

var (
	entry     = regexp.MustCompile(`Compiling entry function '(\w+)'`)
	spills    = regexp.MustCompile(`(\d+) bytes spill stores, (\d+) bytes spill loads`)
	registers = regexp.MustCompile(`Used (\d+) registers`)
)

// parseUsage parses the output of ptxas -v.
func parseUsage(out []byte) map[string]usage {
	all, kernel, u := map[string]usage{}, "", usage{}
	for line := range bytes.Lines(out) {
		if m := entry.FindSubmatch(line); m != nil {
			kernel, u = string(m[1]), usage{}
		}
		if m := spills.FindSubmatch(line); m != nil {
			u.spilled = number(m[1]) + number(m[2])
		}
		if m := registers.FindSubmatch(line); m != nil && kernel != "" {
			u.registers = number(m[1])
			all[kernel] = u
		}
	}
	return all
}

func number(digits []byte) int {
	n, _ := strconv.Atoi(string(digits)) // the pattern allows only digits
	return n
}

func order(a, b row) int {
	return cmp.Or(cmp.Compare(a.arch, b.arch), cmp.Compare(a.module, b.module), cmp.Compare(a.kernel, b.kernel))
}

func format(all map[row]usage) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Registers per thread and spilled bytes (stores and loads), from ptxas %s.\n# Generated by `go test ./tests/nvidia -run TestRegisters -update`.\n", PTXASVersion)
	for _, r := range slices.SortedFunc(maps.Keys(all), order) {
		fmt.Fprintf(&b, "%-6s %-24s %-40s %3d %4d\n", r.arch, r.module, r.kernel, all[r].registers, all[r].spilled)
	}
	return b.Bytes()
}

func parseTable(t *testing.T, text []byte) map[row]usage {
	t.Helper()
	all := map[row]usage{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var r row
		var u usage
		if _, err := fmt.Sscan(line, &r.arch, &r.module, &r.kernel, &u.registers, &u.spilled); err != nil {
			t.Fatalf("%s: line %q: %v", tableFile, line, err)
		}
		all[r] = u
	}
	return all
}

// TestTableNamesAllKernels checks that the table has a row for each kernel. It does not need ptxas.
func TestTableNamesAllKernels(t *testing.T) {
	text, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	table := parseTable(t, text)
	for arch, modules := range map[string][]string{"sm_80": kernels.Modules(), "sm_90": kernels.Modules(), "sm_90a": kernels.HopperModules()} {
		for _, m := range modules {
			for _, k := range kernels.Names(m) {
				if _, ok := table[row{arch, m, k}]; !ok {
					t.Errorf("%s has no row for %s of %s on %s", tableFile, k, m, arch)
				}
			}
		}
	}
	if len(table) < 100 {
		t.Errorf("%s has %d rows, want at least 100", tableFile, len(table))
	}
}

// TestCompareUsage checks the comparison with the table.
func TestCompareUsage(t *testing.T) {
	r := row{"sm_80", "norm", "layer_norm"}
	for _, c := range []struct {
		name      string
		got, want usage
		unknown   bool
		differs   bool
	}{
		{name: "equal", got: usage{40, 8}, want: usage{40, 8}},
		{name: "fewer", got: usage{30, 0}, want: usage{40, 8}},
		{name: "within the unit", got: usage{48, 0}, want: usage{40, 0}},
		{name: "more registers", got: usage{49, 0}, want: usage{40, 0}, differs: true},
		{name: "more spills", got: usage{40, 4}, want: usage{40, 0}, differs: true},
		{name: "new kernel", got: usage{200, 0}, unknown: true},
		{name: "new kernel with spills", got: usage{40, 4}, unknown: true, differs: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := map[row]usage{r: c.want}
			if c.unknown {
				want = nil
			}
			if d := compare(map[row]usage{r: c.got}, want); (len(d) > 0) != c.differs {
				t.Errorf("got %q, want a difference: %t", d, c.differs)
			}
		})
	}
}

// TestParseUsage checks the parser with the output of ptxas 12.4.
func TestParseUsage(t *testing.T) {
	const out = `ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'sort_tokens' for 'sm_90'
ptxas info    : Function properties for sort_tokens
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 32 registers, 33280 bytes smem, 384 bytes cmem[0]
ptxas info    : Compiling entry function 'embed' for 'sm_90'
ptxas info    : Function properties for embed
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 18 registers, 392 bytes cmem[0]
`
	want := map[string]usage{"sort_tokens": {32, 20}, "embed": {18, 0}}
	if got := parseUsage([]byte(out)); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestFetch checks downloads: from the second mirror, a wrong digest, a missing file in the
// package, no free space, and a server that does not answer.
func TestFetch(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("skipped: dpkg-deb not found")
	}
	deb := debianFile(t)
	stopped := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/good/", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(deb) })
	mux.HandleFunc("/cut/", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(deb[:len(deb)/2]) })
	mux.HandleFunc("/hangs/", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-stopped:
		case <-r.Context().Done():
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(stopped) })
	digest := fmt.Sprintf("%x", sha256.Sum256(deb))
	for _, c := range []struct {
		name    string
		mirrors []string
		member  string
		minFree uint64
		err     string // empty means success
	}{
		{name: "good", mirrors: []string{"/good/"}},
		{name: "second mirror", mirrors: []string{"/missing/", "/good/"}},
		{name: "missing", mirrors: []string{"/missing/"}, err: "404"},
		{name: "truncated", mirrors: []string{"/cut/"}, err: "digest"},
		{name: "no member", mirrors: []string{"/good/"}, member: "./usr/bin/other", err: "./usr/bin/other"},
		{name: "no space", mirrors: []string{"/good/"}, minFree: 1 << 62, err: "free space"},
		{name: "no answer", mirrors: []string{"/hangs/"}, err: "timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			p := debianPackage{path: "p.deb", sha256: digest, member: cmp.Or(c.member, "./usr/bin/tool"), name: "tool-1", mode: 0o755}
			f := Fetcher{Dir: dir, packages: []debianPackage{p}, minFree: cmp.Or(c.minFree, 1), dialTimeout: time.Minute}
			if c.name == "no answer" {
				f.dialTimeout = time.Second
			}
			for _, m := range c.mirrors {
				f.Mirrors = append(f.Mirrors, server.URL+m)
			}
			err := f.Fetch(t.Context())
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %q", err, c.err)
				}
			} else if text, read := os.ReadFile(filepath.Join(dir, "tool-1")); err != nil || read != nil || string(text) != "#!/bin/sh\n" {
				t.Errorf("got %v, %v, %q", err, read, text)
			}
			if left, err := filepath.Glob(filepath.Join(dir, "new-*")); len(left) > 0 || err != nil {
				t.Errorf("temporary files %q, %v", left, err)
			}
		})
	}
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := (Fetcher{Dir: t.TempDir(), Mirrors: []string{server.URL + "/good/"}, minFree: 1}).Fetch(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	})
}

// debianFile returns a Debian package with the file usr/bin/tool, and a file that is larger than a
// pipe's buffer.
func debianFile(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"DEBIAN/control": "Package: tool\nVersion: 1\nArchitecture: all\nMaintainer: Nobody <nobody@example.org>\nDescription: test\n", "usr/bin/tool": "#!/bin/sh\n", "usr/share/large": strings.Repeat("large\n", 1<<18)} {
		file := filepath.Join(dir, "tree", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "tool.deb")
	if out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--root-owner-group", "--build", filepath.Join(dir, "tree"), file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	deb, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return deb
}
