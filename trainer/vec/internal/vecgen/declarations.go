package main

import (
	"fmt"
	"strings"
)

// prototype returns the declaration of a kernel in assembly, without "func".
func prototype(prefix string, k kernel) string {
	var args []string
	for _, a := range k.arrays {
		args = append(args, fmt.Sprintf("%s *%s", a.name, elementType(a)))
	}
	return prefix + capital(k.name) + "(" + strings.Join(append(args, "n int"), ", ") + scalars(k) + ")" + results(k)
}

// signature returns the declaration of a kernel in Go, after its name.
func signature(k kernel) string {
	var args []string
	for _, a := range k.arrays {
		args = append(args, fmt.Sprintf("%s []%s", a.name, elementType(a)))
	}
	return "(" + strings.Join(args, ", ") + scalars(k) + ")" + results(k)
}

func elementType(a array) string {
	if a.half {
		return "uint16"
	}
	return "float32"
}

func scalars(k kernel) string {
	text := ""
	for _, name := range k.floats {
		text += ", " + name + " float32"
	}
	for _, name := range k.words {
		text += ", " + name + " uint32"
	}
	return text
}

func results(k kernel) string {
	var list []string
	for i, r := range newBody(k, features{}).reductions {
		list = append(list, fmt.Sprintf("%s %s", k.results[i], r.start.kind))
	}
	if list == nil {
		return ""
	}
	return " (" + strings.Join(list, ", ") + ")"
}

// declarations returns the head of the Go file that declares the assembly.
func declarations(list []kernel) string {
	w := &writer{}
	w.WriteString(header + "package vec\n\nimport \"unsafe\"\n")
	for _, t := range []target{avx512, avx2} {
		for _, k := range list {
			fmt.Fprintf(w, "\n//go:noescape\nfunc %s\n", prototype(t.name, k))
		}
	}
	return w.String()
}

// dispatch returns the methods of Unit that call the kernels of the unit's instruction set. If
// choice is false, it returns the file for architectures with portable kernels only.
func dispatch(list []kernel, choice bool) string {
	w := &writer{}
	if !choice {
		w.WriteString(header + "//go:build !amd64\n\npackage vec\n")
	}
	for _, k := range list {
		fmt.Fprintf(w, "\nfunc (u *Unit) %s%s {\n", k.name, signature(k))
		ret := ""
		if len(k.results) > 0 {
			ret = "return "
		}
		var slices, rest, pointers []string
		for _, a := range k.arrays {
			slices = append(slices, a.name)
			rest = append(rest, a.name+"[n:]")
			pointers = append(pointers, fmt.Sprintf("unsafe.SliceData(%s)", a.name))
		}
		further := ""
		for _, name := range append(append([]string{}, k.floats...), k.words...) {
			further += ", " + name
		}
		inGo := fmt.Sprintf("portable%s(%s%s)", capital(k.name), strings.Join(slices, ", "), further)
		if choice {
			first := k.arrays[0].name
			w.op("switch u.set {")
			for _, t := range []target{avx512, avx2} {
				w.op("case %s:", t.name)
				call := fmt.Sprintf("%s%s(%s, %%s%s)", t.name, capital(k.name), strings.Join(pointers, ", "), further)
				if k.halves() && !t.masks {
					w.op("\tn := len(%s) &^ %d", first, t.bytes/4-1)
					w.op("\t"+call, "n")
					w.op("\tportable%s(%s%s)", capital(k.name), strings.Join(rest, ", "), further)
				} else {
					w.op("\t"+ret+call, "len("+first+")")
				}
			}
			w.op("default:\n\t\t%s%s", ret, inGo)
			w.op("}")
		} else {
			w.op("%s%s", ret, inGo)
		}
		w.WriteString("}\n")
	}
	return w.String()
}
