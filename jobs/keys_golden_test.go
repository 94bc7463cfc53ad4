package jobs

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// keyProbes are TOML values of all kinds: within, on, and beyond the limits of the types.
var keyProbes = strings.Split(`0
1
-1
2
3
7
65535
65536
2147483647
2147483648
9223372036854775807
0.0
1e-50
1e-9
0.25
0.5
0.500001
0.75
0.99999999999
1.0
2.5
1e38
1e39
-0.5
inf
nan
true
false
02:00:00
{}
[]
[1]
["x"]
[""]
["auto"]
["a b"]
["-x"]
["afterok:x"]
["SLURM_X"]
""
"x"
"-x"
".x"
"a b"
"a/b"
"/a"
"a#b"
"~"
"0"
"90"
"90:30"
"02:00:00"
"1-12"
"0:0:0"
"64G"
"0G"
"5g"
"25 MiB"
"1 GiB"
"2 GiB"
"25 MB"
"90s"
"1h30m"
"-3s"
"0s"
"1.5s"
"500 steps"
"1 epoch"
"0 steps"
"100-110"
"1-1001"
"1-1000"
"0-3"
"eth0"
"auto"
"gpu"
"fsdp"
"name_that_is_too_long"
"afterok:prepare"
"never:x"
"\u0007"
"\u202e"
"\u200b"`, "\n")

// TestKeysGolden compares the declaration of each key with the golden file: its type, default,
// and JSON schema, and the probes that it accepts. Only descriptions may change freely.
func TestKeysGolden(t *testing.T) {
	probes := map[string]bool{}
	for _, p := range keyProbes {
		probes[p] = true
	}
	words := map[string]bool{} // choices are also probes
	eachKey(reflect.TypeFor[Job](), nil, func(_ []string, f *field) {
		for _, choice := range f.rules.choices {
			words[fmt.Sprintf("%q", choice)] = true
		}
	})
	all := append([]string{}, keyProbes...)
	for _, w := range slices.Sorted(maps.Keys(words)) {
		if !probes[w] {
			all = append(all, w)
		}
	}
	var b strings.Builder
	schema := map[string]map[string]any{}
	eachKey(reflect.TypeFor[Job](), nil, func(path []string, f *field) {
		s := maps.Clone(f.form().schema)
		delete(s, "description")
		schema[keyName(path)] = s
	})
	for _, k := range Keys() {
		fmt.Fprintf(&b, "%s\n", k.Name)
		if k.Table {
			continue
		}
		fmt.Fprintf(&b, "  type: %s\n  default: %s\n", k.Type, k.Default)
		fmt.Fprintf(&b, "  schema: %s", strings.Join(strings.Fields(string(marshal(schema[k.Name]))), " "))
		b.WriteString("\n  accepts:")
		for _, p := range all {
			if !probes[p] && schema[k.Name]["enum"] == nil {
				continue
			}
			_, err := Parse("job.toml", []byte(k.Name+" = "+p+"\n"))
			if rejected := about(err, k.Name); !rejected {
				b.WriteString(" " + p)
			}
		}
		b.WriteString("\n")
	}
	golden := "testdata/keys.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the keys differ from %s (go test ./jobs -update rewrites it):\n%s", golden, firstDifference(b.String(), string(want)))
	}
}

// firstDifference returns the first line that differs.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d:\ngot  %s\nwant %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("got %d lines, want %d", len(g), len(w))
}
