package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/cmd/ddpbatch/manual"
	"github.com/ddpbatch/ddpbatch/jobs"
)

// texts returns the string literals of the program by position. It joins concatenated
// literals.
func texts(t *testing.T) map[string]string {
	t.Helper()
	const root = "../.."
	all := map[string]string{}
	files := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "tests" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			if text := literal(e); text != "" {
				all[files.Position(e.Pos()).String()] = text
				return false
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// literal returns the text of a string literal or of a concatenation. Each operand that is not
// a literal counts as a word.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return s
		}
	case *ast.BinaryExpr:
		left, right := literal(e.X), literal(e.Y)
		if e.Op == token.ADD && left+right != "" {
			const other = "X"
			if left == "" {
				left = other
			}
			if right == "" {
				right = other
			}
			return left + right
		}
	}
	return ""
}

// TestHintsNameWhatExists checks that hints name only commands, flags, and job file keys that
// exist.
func TestHintsNameWhatExists(t *testing.T) {
	var (
		quoted   = regexp.MustCompile("`ddpbatch ([^`]*)`")
		flag     = regexp.MustCompile(`(?:^|[\s(])--([a-z][a-z-]*)`)
		key      = regexp.MustCompile(`\b(?:slurm|setup|restart|checkpoint|network|train|command)\.[a-z_0-9]+(?:\.[a-z_0-9]+)*`)
		pytorch  = regexp.MustCompile(`\btorch\.[a-z_.]+`) // modules, such as torch.distributed.checkpoint
		commands = regexp.MustCompile("`[^`]*`")
		advises  = regexp.MustCompile(`/jobs/(doctor|watch)/|/netif/probe/|/slurm/hints\.go|/cmd/ddpbatch/doctor_(log|job)`)
		file     = regexp.MustCompile(`\.(py|bin|json|md|err|sh|toml|sbatch)$`)
		section  = regexp.MustCompile(`\[((?:slurm|setup|restart|checkpoint|network|train|command)(?:\.[a-z]+)?)\] ([a-z_]+)`)
	)
	// Words that follow a section name in a sentence.
	prose := strings.Fields("to job section goes is your nor")
	// Flags of other programs that messages mention without the program, by their program.
	others := map[string]string{
		"ipc": "podman", "shm-size": "podman", "me": "squeue", "mpi": "srun", "overlap": "srun", "cpus-per-task": "srun", "gpus-per-task": "srun",
		"gpu-bind": "srun", "requeue": "sbatch", "open-mode": "sbatch", "signal": "sbatch",
		"node": "ddpbatch doctor, hidden",
	}
	described := describedProgram(t)
	flags := map[string]bool{}
	for _, c := range described.Commands {
		for _, f := range c.Flags {
			flags[f.Name] = true
		}
	}
	delete(flags, "exclude") // only netif has this flag; in a hint it would suggest a flag of submit
	keys := map[string]bool{}
	for _, k := range jobs.Keys() {
		keys[k.Name] = true
	}
	checked := 0
	said := texts(t)
	for at, text := range said {
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			c, ok := commandOf(described, strings.Fields(m[1]))
			if !ok {
				t.Errorf("%s: there is no command %q", at, m[1])
			}
			for _, f := range flag.FindAllStringSubmatch(m[1], -1) {
				if checked++; !slices.ContainsFunc(c.Flags, func(known manual.Flag) bool { return known.Name == f[1] }) {
					t.Errorf("%s: the command %q has no flag --%s", at, m[1], f[1])
				}
			}
		}
		for _, m := range key.FindAllString(pytorch.ReplaceAllString(text, ""), -1) {
			if checked++; !keys[m] && !file.MatchString(m) {
				t.Errorf("%s: %q: there is no key %s", at, text, m)
			}
		}
	}
	for at, text := range said {
		if !advises.MatchString(at) {
			continue
		}
		for _, m := range section.FindAllStringSubmatch(text, -1) {
			if checked++; !keys[m[1]+"."+m[2]] && !slices.Contains(prose, m[2]) {
				t.Errorf("%s: %q: there is no key %s.%s", at, text, m[1], m[2])
			}
		}
		for _, m := range flag.FindAllStringSubmatch(commands.ReplaceAllString(text, ""), -1) {
			if checked++; !flags[m[1]] && others[m[1]] == "" {
				t.Errorf("%s: %q: --%s is no flag that a reader can give to ddpbatch", at, text, m[1])
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d names were found", checked)
	}
}

// commandOf returns the command at the beginning of words.
func commandOf(p manual.Program, words []string) (manual.Command, bool) {
	for _, c := range p.Commands {
		if len(words) >= len(c.Path) && slices.Equal(c.Path, words[:len(c.Path)]) {
			return c, true
		}
	}
	return manual.Command{}, false
}
