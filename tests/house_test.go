package tests

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const module = "github.com/ddpbatch/ddpbatch/"

// mayImport is the house's floor plan: which of our packages each room may
// import, itself and its inner rooms aside. A prefix that ends in /... stands
// for all below it.
var mayImport = map[string][]string{
	"jobs":            {},
	"jobs/process":    {},
	"jobs/rundir":     {"jobs", "jobs/process", "netif"},
	"jobs/snapshot":   {},
	"jobs/outcome":    {"jobs/rundir", "slurm", "trainer/checkpoint"},
	"jobs/watch":      {"jobs/outcome", "jobs/rundir", "jobs/watch/screen", "slurm", "trainer/checkpoint", "trainer/metrics"},
	"jobs/secrets":    {},
	"templates/sites": {"jobs"},
	"templates":       {"jobs", "templates/sites"},
	"jobs/doctor":     {"netif", "nccl", "slurm", "trainer/cuda", "trainer/cuda/library"},
	"jobs/report":     {"jobs/doctor/symptoms", "jobs/outcome", "jobs/rundir", "jobs/watch", "slurm", "trainer/checkpoint", "trainer/metrics", "trainer/rendezvous"},
	"jobs/submit":     {"jobs", "jobs/outcome", "jobs/rundir", "jobs/snapshot", "slurm", "templates/sites", "trainer/checkpoint"},
	"jobs/launchers":  {},
	"jobs/sbatch":     {"jobs"},
	"jobs/launch": {"jobs", "jobs/launchers", "jobs/process", "jobs/rundir", "jobs/secrets", "templates/sites", "slurm", "netif", "netif/probe", "netif/watch", "nccl",
		"trainer/rendezvous", "trainer/collective", "trainer/collective/mpi", "trainer/wire", "trainer/checkpoint"},
	"cmd/ddpbatch/manual": {"jobs"},
	"slurm":               {},
	"netif":               {},
	"netif/probe":         {"netif"},
	"netif/watch":         {},
	"nccl":                {"netif"},
	// The binding is below the trainer's communicator, which it implements.
	"nccl/libnccl":      {"trainer/cuda/library"},
	"nccl/communicator": {"nccl/libnccl", "trainer/collective", "trainer/collective/element"},
	"nccl/gpu":          {"nccl/communicator", "trainer/cuda/driver"},
	"trainer":           {"jobs", "trainer/..."},
	"trainer/...":       {"trainer/..."},
	"cmd/ddpbatch":      {"..."},
	"tests/...":         {"..."},
	// What every package needs, and what itself imports none of them.
	"internal/...": {},
}

func allowed(from, to string) bool {
	if strings.HasPrefix(to, "internal/") {
		return true
	}
	match := func(pattern, pkg string) bool {
		if base, deep := strings.CutSuffix(pattern, "..."); deep {
			return strings.HasPrefix(pkg+"/", base)
		}
		return pattern == pkg
	}
	rule, ok := mayImport[from]
	if !ok {
		for pattern, r := range mayImport {
			if strings.HasSuffix(pattern, "/...") && match(pattern, from) {
				rule, ok = r, true
			}
		}
	}
	if !ok {
		return strings.HasPrefix(to, from+"/") || strings.Contains(from, "/") && allowed(filepath.Dir(from), to)
	}
	for _, pattern := range rule {
		if match(pattern, to) {
			return true
		}
	}
	return false
}

// TestHouseArrows: every import between our packages is on the floor plan.
func TestHouseArrows(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "../...").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := 0
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		fields := strings.Fields(line)
		from := strings.TrimPrefix(fields[0], module)
		packages++
		for _, path := range fields[1:] {
			to, ours := strings.CutPrefix(path, module)
			if ours && !allowed(from, to) {
				t.Errorf("%s must not import %s: see ARCHITECTURE.md, \"Rooms\"", from, to)
			}
		}
	}
	if packages < 15 {
		t.Errorf("only %d packages were looked at", packages)
	}
}

// TestHouseFront: nothing is at the top but the rooms that everybody knows, and what tools
// and readers look for there.
func TestHouseFront(t *testing.T) {
	const known = " .ci .editorconfig .gitignore ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md LICENSE Makefile README.md " +
		"cmd docs go.mod go.sum internal jobs nccl netif slurm templates tests trainer "
	for _, f := range sources(t, "") {
		if top, _, _ := strings.Cut(f, "/"); !strings.Contains(known, " "+top+" ") {
			t.Errorf("%s: %s has no place at the top", f, top)
		}
	}
}

func sources(t *testing.T, suffix string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files", "--cached", "--others", "--exclude-standard", "*"+suffix).Output()
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, f := range strings.Fields(string(out)) {
		if _, err := os.Stat(filepath.Join("..", f)); err == nil {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		t.Fatalf("no %s files", suffix)
	}
	return files
}

// TestHousePackageDocs: every package says what it is and what it does not do.
func TestHousePackageDocs(t *testing.T) {
	docs := map[string]string{}
	for _, f := range sources(t, ".go") {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", f), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Errorf("%s: %v", f, err)
			continue
		}
		if dir := filepath.Dir(f); !strings.HasSuffix(f, "_test.go") && !strings.Contains(dir, "testdata") && !ignored(f) {
			docs[dir] += parsed.Doc.Text()
		}
	}
	for dir, doc := range docs {
		switch {
		case doc == "":
			t.Errorf("%s: the package has no comment", dir)
		case !strings.Contains(dir, "cmd/") && !regexp.MustCompile(`(?i)\b(does|do|is|are|has|needs?|never)\b[^.]*\b(not|no|never)\b`).MatchString(doc):
			t.Errorf("%s: the package comment does not say what the package does not do", dir)
		}
	}
}

// ignored says whether a file is a program of its own, run by go run.
func ignored(file string) bool {
	text, err := os.ReadFile(filepath.Join("..", file))
	return err == nil && bytes.Contains(text, []byte("//go:build ignore"))
}

// TestHouseFilesAreSmall: a file has one purpose and fits in a head, unless it was
// generated: its generator does.
func TestHouseFilesAreSmall(t *testing.T) {
	const limit = 400
	for _, f := range sources(t, ".go") {
		text, err := os.ReadFile(filepath.Join("..", f))
		if err != nil {
			t.Fatal(err)
		}
		generated := bytes.HasPrefix(text, []byte("// Code generated "))
		if n := bytes.Count(text, []byte("\n")); n > limit && !generated && !strings.HasSuffix(f, "_test.go") {
			t.Errorf("%s has %d lines; more than %d want a new room", f, n, limit)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)

// TestHouseLinks: relative links in the documents lead somewhere.
func TestHouseLinks(t *testing.T) {
	for _, f := range sources(t, ".md") {
		text, err := os.ReadFile(filepath.Join("..", f))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join("..", filepath.Dir(f), m[1])); err != nil {
				t.Errorf("%s: link to %s: %v", f, m[1], err)
			}
		}
	}
}
