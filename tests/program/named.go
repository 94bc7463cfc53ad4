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

// HasTest reports whether go test runs a test in a directory: the function must be in a file that
// builds on this system, with or without the tag cuda. said is the text of the string literals of
// the test, of the declarations in the package's test files that it uses, and of the golden files
// that these literals name. It contains the text that the test searches for, but no comments and no
// other tests of the file.
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

// builds reports whether a test file builds on this system.
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

// isTest reports whether go test runs a function as a test.
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

// names returns the names that a declaration declares. A method is listed under its own name.
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

// golden returns the text of the file in testdata that a literal names, or "".
func golden(folder, literal string) string {
	if !strings.HasPrefix(literal, "testdata/") {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(folder, literal))
	if err != nil {
		return "" // a directory or a part of a name
	}
	return string(text)
}
