package program

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// HasTest says whether go test runs a test of a folder: a function for it stands in a file
// that builds here, with the tag cuda or without. Said is the text of the string literals
// of the test and of what it uses of its package's test files, with those of the golden
// files that these name: what the test looks for is among it, comments and other tests of
// the file are not.
func HasTest(t *testing.T, folder, name string) (said string, has bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string][]ast.Node{}
	for _, file := range files {
		if !builds(t, file) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			for _, n := range names(d) {
				declared[n] = append(declared[n], d)
			}
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == name && isTest(f) {
				has = true
			}
		}
	}
	if !has {
		return "", false
	}
	var text strings.Builder
	seen := map[string]bool{name: true}
	for next := []string{name}; len(next) > 0; next = next[1:] {
		for _, d := range declared[next[0]] {
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BasicLit:
					if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
						text.WriteString(s + "\n" + golden(folder, s))
					}
				case *ast.Ident:
					if !seen[n.Name] {
						seen[n.Name] = true
						next = append(next, n.Name)
					}
				}
				return true
			})
		}
	}
	return text.String(), true
}

// builds says whether a file of tests is one on this system.
func builds(t *testing.T, file string) bool {
	t.Helper()
	for _, tags := range [][]string{nil, {"cuda"}} {
		c := build.Default
		c.BuildTags = tags
		ok, err := c.MatchFile(filepath.Split(file))
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			return true
		}
	}
	return false
}

// isTest says whether go test takes a function for a test.
func isTest(f *ast.FuncDecl) bool {
	if !strings.HasPrefix(f.Name.Name, "Test") || f.Recv != nil || f.Type.Params.NumFields() != 1 || f.Type.Results != nil {
		return false
	}
	p, ok := f.Type.Params.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	s, ok := p.X.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "T"
}

// names are those that a declaration declares; methods are known by their own.
func names(d ast.Decl) (all []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		all = append(all, d.Name.Name)
	case *ast.GenDecl:
		for _, s := range d.Specs {
			if v, ok := s.(*ast.ValueSpec); ok {
				for _, n := range v.Names {
					all = append(all, n.Name)
				}
			}
		}
	}
	return all
}

// golden is the text of a file of testdata, where a literal names one.
func golden(folder, literal string) string {
	if !strings.HasPrefix(literal, "testdata/") {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(folder, literal))
	if err != nil {
		return "" // a folder, or the beginning of a name
	}
	return string(text)
}
