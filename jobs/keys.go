package jobs

import (
	"embed"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"strings"
)

// A Key is a key of the job file, as documents and editors know it.
type Key struct {
	Name    string // "slurm.nodes"; "slurm" for the table itself
	Table   bool   // it has keys of its own, which follow
	Type    string // in words: "whole number from 1"
	Default string // what stands in for it; "needed" where nothing can; empty: nothing does
	Meaning string // what it is, with units and bounds; of a table what follows its name in a sentence
}

// The keys are declared once, as fields of structs, and described there: the comment of
// a field is what people read of its key.
//
//go:embed spec.go sweep.go
var declarations embed.FS

// Keys returns every key of the job file, in the order in which they are declared.
func Keys() []Key {
	comments := readComments()
	var keys []Key
	var walk func(t reflect.Type, path []string)
	walk = func(t reflect.Type, path []string) {
		for field := range t.Fields() {
			name := field.Tag.Get("toml")
			if name == "" {
				continue
			}
			at := append(path[:len(path):len(path)], name)
			inner := tableType(field.Type)
			k := Key{Name: keyName(at), Type: formOf(field.Type).words, Meaning: comments[t.Name()+"."+field.Name]}
			if inner != nil && inner.Kind() == reflect.Struct {
				k.Table = true
				k.Meaning = strings.TrimPrefix(comments[inner.Name()], inner.Name()+" ")
				keys = append(keys, k)
				walk(inner, at)
				continue
			}
			k.Meaning, k.Default = splitDefault(k.Meaning)
			if _, required := examples[k.Name]; required && k.Default == "" {
				k.Default = "needed"
			}
			if k.Default == "" && field.Type.Kind() == reflect.Bool {
				k.Default = "false"
			}
			keys = append(keys, k)
		}
	}
	walk(reflect.TypeFor[Job](), nil)
	return keys
}

// readComments returns the comments of structs by "Struct", and of their fields by
// "Struct.Field".
func readComments() map[string]string {
	comments := map[string]string{}
	for _, name := range []string{"spec.go", "sweep.go"} {
		src, err := declarations.ReadFile(name)
		if err != nil {
			panic("jobs: " + err.Error())
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			panic("jobs: " + err.Error())
		}
		for _, d := range file.Decls {
			types, ok := d.(*ast.GenDecl)
			if !ok || types.Tok != token.TYPE {
				continue
			}
			for _, spec := range types.Specs {
				t := spec.(*ast.TypeSpec)
				comments[t.Name.Name] = oneLine(types.Doc.Text())
				if s, ok := t.Type.(*ast.StructType); ok {
					for _, f := range s.Fields.List {
						for _, n := range f.Names {
							comments[t.Name.Name+"."+n.Name] = oneLine(f.Doc.Text() + f.Comment.Text())
						}
					}
				}
			}
		}
	}
	return comments
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

var (
	defaultLast   = regexp.MustCompile(`;? ?\bdefault ([^;:]+)$`)
	defaultAhead  = regexp.MustCompile(`\bdefault ([^;:]+)`)
	defaultMarked = regexp.MustCompile(`(\S+) \(default\)`)
)

// splitDefault finds the default in a comment, "...; default 60s" or "auto (default), cpu",
// and leaves it out of the meaning where it is the last of it.
func splitDefault(comment string) (meaning, byDefault string) {
	if m := defaultMarked.FindStringSubmatch(comment); m != nil {
		return comment, `"` + m[1] + `"`
	}
	if m := defaultAhead.FindStringSubmatch(comment); m != nil {
		return defaultLast.ReplaceAllString(comment, ""), m[1]
	}
	return comment, ""
}

// choicesOf are the strings that a type takes, if it takes some strings only: the type
// says so where it refuses another.
func choicesOf(t reflect.Type) []string {
	v, ok := reflect.New(t).Interface().(tomlValue)
	var r *refusal
	if !ok || !errors.As(v.UnmarshalTOML("\x00"), &r) {
		return nil
	}
	return r.choices
}
