package tests

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/ddpbatch/ddpbatch/"

// An importRule forbids packages to import other packages. A pattern that ends in /... matches
// a package and all packages below it, and "..." matches every package of this module.
type importRule struct {
	from, to             string // patterns
	exceptFrom, exceptTo string // patterns of exceptions, separated by spaces; may be empty
}

// forbiddenImports separates the layers of the program: commands use jobs, jobs uses the
// libraries, and the libraries do not depend on jobs. Every package may import internal/...
var forbiddenImports = []importRule{
	{from: "...", to: "cmd/...", exceptFrom: "cmd/..."},
	{from: "...", to: "tests/...", exceptFrom: "tests/..."},
	{from: "internal/...", to: "..."},

	{from: "slurm/...", to: "..."},
	{from: "netif/...", to: "...", exceptTo: "netif/..."},
	{from: "nccl/...", to: "jobs/..."},
	{from: "nccl/...", to: "templates/..."},
	{from: "nccl/...", to: "slurm/..."},

	// Package trainer reads the [train] table of package jobs. The packages below it do not.
	{from: "trainer/...", to: "jobs/...", exceptFrom: "trainer"},
	{from: "trainer", to: "jobs/...", exceptTo: "jobs"},
	{from: "trainer/...", to: "templates/..."},
	{from: "trainer/...", to: "slurm/..."},
	{from: "trainer/...", to: "netif/..."},
	{from: "trainer/...", to: "nccl/..."},

	{from: "jobs", to: "..."},
	{from: "jobs/...", to: "templates"},
	// Package predict runs a step of the trainer. Package jobfile counts the samples that it would read.
	{from: "jobs/...", to: "trainer", exceptFrom: "jobs/predict jobs/jobfile"},
}

// matchesPackage reports whether a package matches a pattern of an importRule.
func matchesPackage(pattern, pkg string) bool {
	base, hasSubpackages := strings.CutSuffix(pattern, "...")
	return pattern == pkg || hasSubpackages && strings.HasPrefix(pkg+"/", base)
}

// matchesAny reports whether a package matches one of the patterns in a list.
func matchesAny(patterns, pkg string) bool {
	return slices.ContainsFunc(strings.Fields(patterns), func(p string) bool { return matchesPackage(p, pkg) })
}

// isForbiddenImport reports whether a rule forbids package from to import package to.
func isForbiddenImport(from, to string) bool {
	if strings.HasPrefix(to, "internal/") {
		return false
	}
	for _, r := range forbiddenImports {
		isException := matchesAny(r.exceptFrom, from) || matchesAny(r.exceptTo, to)
		if matchesPackage(r.from, from) && matchesPackage(r.to, to) && !isException {
			return true
		}
	}
	return false
}

// TestForbiddenImports checks the rules with imports that do not exist.
func TestForbiddenImports(t *testing.T) {
	for _, tt := range []struct {
		from, to  string
		forbidden bool
	}{
		{"jobs/launch", "cmd/ddpbatch", true},
		{"cmd/ddpbatch", "cmd/ddpbatch/manual", false},
		{"cmd/ddpbatch", "trainer", false},
		{"tests/faults", "tests/cluster", false},
		{"jobs/submit", "tests/cluster", true},
		{"internal/format", "jobs", true},
		{"internal/format", "internal/printable", false},
		{"slurm", "jobs", true},
		{"slurm", "internal/hints", false},
		{"netif", "slurm", true},
		{"netif/probe", "trainer/wire", true},
		{"netif/watch", "netif/internal/rtnetlink", false},
		{"nccl", "netif", false},
		{"nccl/communicator", "trainer/collective", false},
		{"nccl", "jobs/launch", true},
		{"trainer", "jobs", false},
		{"trainer", "jobs/rundir", true},
		{"trainer/ddp", "jobs", true},
		{"trainer/collective", "nccl/communicator", true},
		{"trainer/checkpoint", "trainer/safetensors", false},
		{"jobs", "jobs/rundir", true},
		{"jobs/launch", "templates/sites", false},
		{"jobs/launch", "templates", true},
		{"jobs/launch", "trainer/rendezvous", false},
		{"jobs/launch", "trainer", true},
		{"jobs/jobfile", "trainer", false},
		{"templates", "jobs", false},
	} {
		if got := isForbiddenImport(tt.from, tt.to); got != tt.forbidden {
			t.Errorf("import of %s by %s: forbidden is %t, want %t", tt.to, tt.from, got, tt.forbidden)
		}
	}
}

// TestImportRules checks that no package breaks a rule of forbiddenImports.
func TestImportRules(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "../...").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, line := range packages {
		fields := strings.Fields(line)
		from := strings.TrimPrefix(fields[0], module)
		for _, path := range fields[1:] {
			if to, isOwn := strings.CutPrefix(path, module); isOwn && isForbiddenImport(from, to) {
				t.Errorf("%s must not import %s: see forbiddenImports", from, to)
			}
		}
	}
	if len(packages) < 15 {
		t.Errorf("got %d packages, want at least 15", len(packages))
	}
}

// TestTopLevelEntries checks that the top directory has no files other than the expected ones.
func TestTopLevelEntries(t *testing.T) {
	const expected = " .ci .editorconfig .gitattributes .gitignore ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md LICENSE Makefile README.md " +
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

// TestDocComments checks that the doc comment of a function or type starts with its name, so
// that no comment keeps the name from before a rename. Test files are included.
func TestDocComments(t *testing.T) {
	files := token.NewFileSet()
	check := func(doc *ast.CommentGroup, name string) {
		words := strings.Fields(doc.Text()) // none without a comment
		if len(words) > 1 && slices.Contains([]string{"A", "An", "The"}, words[0]) {
			words = words[1:]
		}
		if len(words) > 0 && strings.TrimRight(words[0], ".,:;s'") != strings.TrimRight(name, "s") {
			t.Errorf("%s: the comment of %s starts with %q", files.Position(doc.Pos()), name, words[0])
		}
	}
	for _, f := range trackedFiles(t, ".go") {
		if strings.Contains(f, "testdata/") {
			continue
		}
		parsed, err := parser.ParseFile(files, filepath.Join("..", f), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				check(d.Doc, d.Name.Name)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if typ, ok := spec.(*ast.TypeSpec); ok && typ.Doc != nil {
						check(typ.Doc, typ.Name.Name)
					} else if ok && !d.Lparen.IsValid() {
						check(d.Doc, typ.Name.Name)
					}
				}
			}
		}
	}
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

// TestDebian13Tests checks that each test is either in debian13_tests or, below a reason, in
// debian12_tests, and that both list only existing tests.
func TestDebian13Tests(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), os.Args[0], "-test.list", "^Test").Output()
	if err != nil {
		t.Fatal(err)
	}
	exist, listed := strings.Fields(string(out)), map[string]int{}
	for _, file := range []string{"debian13_tests", "debian12_tests"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
			names := strings.Split(part, "\n")
			if reason := strings.HasPrefix(names[0], "# "); reason {
				names = names[1:]
			} else if file == "debian12_tests" {
				t.Errorf("%s: no reason above %s", file, names[0])
			}
			for _, name := range names {
				if listed[name]++; !slices.Contains(exist, name) {
					t.Errorf("%s lists %s, which does not exist", file, name)
				}
			}
		}
	}
	for _, name := range exist {
		if listed[name] != 1 {
			t.Errorf("%s is listed %d times, want once in debian13_tests or debian12_tests", name, listed[name])
		}
	}
}
