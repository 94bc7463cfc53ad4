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

// A Key is a key of the job file, for documents and editors.
type Key struct {
	Name    string // "slurm.nodes"; "slurm" for the table itself
	Table   bool   // whether it is a table, whose keys follow
	Type    string // description, such as "whole number from 1"
	Default string // default value; "needed" if the key is required; empty if there is no default
	Help    string // description with units and bounds; for a table, the predicate of a sentence about it
}

// The fields of structs declare the keys. The comment of a field is the user documentation of
// its key.
//
//go:embed spec.go sweep.go
var declarations embed.FS

// Keys returns all keys of the job file in the order of their declaration.
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
			k := Key{Name: keyName(at), Type: formOf(field.Type).words, Help: comments[t.Name()+"."+field.Name]}
			if inner != nil && inner.Kind() == reflect.Struct {
				k.Table = true
				k.Help = strings.TrimPrefix(comments[inner.Name()], inner.Name()+" ")
				keys = append(keys, k)
				walk(inner, at)
				continue
			}
			k.Help, k.Default = splitDefault(k.Help)
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

// readComments returns the comments of structs by "Struct", and the comments of their fields
// by "Struct.Field".
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

// splitDefault splits the default value from a comment, such as "...; default 60s" or "auto
// (default), cpu". It removes the default from the meaning only if it is at the end.
func splitDefault(comment string) (meaning, byDefault string) {
	if m := defaultMarked.FindStringSubmatch(comment); m != nil {
		return comment, `"` + m[1] + `"`
	}
	if m := defaultAhead.FindStringSubmatch(comment); m != nil {
		return defaultLast.ReplaceAllString(comment, ""), m[1]
	}
	return comment, ""
}

// choicesOf returns the strings that a type accepts, or nil if it is not a choice. It gets
// them from the error for an invalid string.
func choicesOf(t reflect.Type) []string {
	v, ok := reflect.New(t).Interface().(tomlValue)
	var r *valueError
	if !ok || !errors.As(v.UnmarshalTOML("\x00"), &r) {
		return nil
	}
	return r.choices
}
