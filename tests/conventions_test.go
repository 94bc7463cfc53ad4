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

// allowedImports lists the packages of this module that each package may import, in
// addition to its own subdirectories. A path that ends in /... matches all packages
// below it.
var allowedImports = map[string][]string{
	"jobs":            {},
	"jobs/process":    {},
	"jobs/rundir":     {"jobs", "jobs/process", "netif"},
	"jobs/snapshot":   {},
	"jobs/outcome":    {"jobs", "jobs/rundir", "slurm", "trainer/checkpoint", "trainer/rendezvous"},
	"jobs/watch":      {"jobs/outcome", "jobs/rundir", "jobs/watch/screen", "slurm", "trainer/checkpoint", "trainer/metrics"},
	"jobs/secrets":    {},
	"jobs/trainlog":   {"trainer/metrics"},
	"templates/sites": {"jobs"},
	"templates":       {"jobs", "templates/sites"},
	"jobs/doctor":     {"netif", "nccl", "slurm", "trainer/cuda", "trainer/cuda/library"},
	"jobs/report":     {"jobs/doctor/symptoms", "jobs/outcome", "jobs/rundir", "jobs/watch", "slurm", "trainer/checkpoint", "trainer/metrics", "trainer/rendezvous"},
	"jobs/submit":     {"jobs", "jobs/outcome", "jobs/rundir", "jobs/snapshot", "slurm", "templates/sites", "trainer/checkpoint"},
	"jobs/launchers":  {},
	"jobs/sbatch":     {"jobs"},
	"jobs/launch": {"jobs", "jobs/launchers", "jobs/outcome", "jobs/process", "jobs/rundir", "jobs/secrets", "jobs/trainlog", "templates/sites", "slurm", "netif", "netif/probe", "netif/watch", "nccl",
		"trainer/rendezvous", "trainer/collective", "trainer/collective/mpi", "trainer/wire", "trainer/checkpoint", "trainer/metrics"},
	"cmd/ddpbatch/manual": {"jobs"},
	"slurm":               {},
	"netif":               {},
	"netif/probe":         {"netif"},
	"netif/watch":         {},
	"nccl":                {"netif"},
	// nccl/communicator implements the interface of trainer/collective.
	"nccl/libnccl":      {"trainer/cuda/library"},
	"nccl/communicator": {"nccl/libnccl", "trainer/collective", "trainer/collective/element"},
	"nccl/gpu":          {"nccl/communicator", "trainer/cuda/driver"},
	"trainer":           {"jobs", "trainer/..."},
	"trainer/...":       {"trainer/..."},
	"cmd/ddpbatch":      {"..."},
	"tests/...":         {"..."},
	// Helpers for all packages. They import no package of this module.
	"internal/...": {},
}

// isAllowedImport reports whether package from may import package to.
func isAllowedImport(from, to string) bool {
	if strings.HasPrefix(to, "internal/") {
		return true
	}
	match := func(pattern, pkg string) bool {
		if base, deep := strings.CutSuffix(pattern, "..."); deep {
			return strings.HasPrefix(pkg+"/", base)
		}
		return pattern == pkg
	}
	rule, ok := allowedImports[from]
	if !ok {
		for pattern, r := range allowedImports {
			if strings.HasSuffix(pattern, "/...") && match(pattern, from) {
				rule, ok = r, true
			}
		}
	}
	if !ok {
		return strings.HasPrefix(to, from+"/") || strings.Contains(from, "/") && isAllowedImport(filepath.Dir(from), to)
	}
	for _, pattern := range rule {
		if match(pattern, to) {
			return true
		}
	}
	return false
}

// TestImportRules checks that packages import each other only as allowedImports says.
func TestImportRules(t *testing.T) {
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
			to, internal := strings.CutPrefix(path, module)
			if internal && !isAllowedImport(from, to) {
				t.Errorf("%s must not import %s: see ARCHITECTURE.md, \"Rooms\"", from, to)
			}
		}
	}
	if packages < 15 {
		t.Errorf("got %d packages, want at least 15", packages)
	}
}

// TestTopLevelEntries checks that the top directory has no files other than the expected ones.
func TestTopLevelEntries(t *testing.T) {
	const expected = " .ci .editorconfig .gitignore ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md LICENSE Makefile README.md " +
		"cmd docs go.mod go.sum internal jobs nccl netif slurm templates tests trainer "
	for _, f := range trackedFiles(t, "") {
		if top, _, _ := strings.Cut(f, "/"); !strings.Contains(expected, " "+top+" ") {
			t.Errorf("%s: unexpected entry %s in the top directory", f, top)
		}
	}
}

// trackedFiles returns the files of the repository whose names end in suffix. It omits
// ignored files.
func trackedFiles(t *testing.T, suffix string) []string {
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
		t.Fatalf("no files with suffix %q", suffix)
	}
	return files
}

// TestPackageDocs checks that every package has a comment in the usual form.
func TestPackageDocs(t *testing.T) {
	docs := map[string]string{}
	for _, f := range trackedFiles(t, ".go") {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", f), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Errorf("%s: %v", f, err)
			continue
		}
		if dir := filepath.Dir(f); !strings.HasSuffix(f, "_test.go") && !strings.Contains(dir, "testdata") && !isStandalone(f) {
			docs[dir] += parsed.Doc.Text()
		}
	}
	for dir, doc := range docs {
		first, _, _ := strings.Cut(doc, " ")
		if program := filepath.Base(dir); doc == "" || first != "Package" && first != "Command" && !strings.EqualFold(first, program) {
			t.Errorf("%s: got the package comment %.40q, want one that starts with %q or the name of the program", dir, doc, "Package "+program)
		}
	}
}

// isStandalone reports whether a file is a program for go run, outside of all packages.
func isStandalone(file string) bool {
	text, err := os.ReadFile(filepath.Join("..", file))
	return err == nil && bytes.Contains(text, []byte("//go:build ignore"))
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)

// TestDocumentLinks checks that relative links in Markdown files point to existing files.
func TestDocumentLinks(t *testing.T) {
	for _, f := range trackedFiles(t, ".md") {
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
