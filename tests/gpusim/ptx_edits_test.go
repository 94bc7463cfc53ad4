//go:build cuda

package gpusim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// edits lists changes of a text. Each returns the new text and a description.
var edits = []struct {
	name     string
	rejected bool // always
	edit     func(r *rand.Rand, text string) (string, string)
}{
	{name: "flipped bit", edit: func(r *rand.Rand, text string) (string, string) {
		b := []byte(text)
		at, bit := r.IntN(len(b)), r.IntN(8)
		b[at] ^= 1 << bit
		return string(b), fmt.Sprintf("byte %d, bit %d", at, bit)
	}},
	{name: "deleted line", edit: func(r *rand.Rand, text string) (string, string) {
		return editLine(r, text, func(string) string { return "" })
	}},
	{name: "duplicated line", edit: func(r *rand.Rand, text string) (string, string) {
		return editLine(r, text, func(line string) string { return line + line })
	}},
	{name: "another number", edit: func(r *rand.Rand, text string) (string, string) {
		return editWord(r, text, number, "0", "1", "-1", "7", "63", "4095", "2147483648", "4294967295", "18446744073709551615", "99999999999999999999999", "0x", "1e9")
	}},
	{name: "another type", edit: func(r *rand.Rand, text string) (string, string) {
		return editWord(r, text, typeName, ".pred", ".b8", ".s8", ".u16", ".s16", ".b32", ".s32", ".b64", ".s64", ".f32", ".f64", ".v4")
	}},
	{name: "another operand", edit: func(r *rand.Rand, text string) (string, string) {
		return editWord(r, text, register, "", "{}", "{%r1, %r2}", "[%r1]", "%p1", "%rd1", "%tid.x", "dynamic_shared", "0f00000000", "%", "$")
	}},
	{name: "cut", rejected: true, edit: func(r *rand.Rand, text string) (string, string) {
		entry := strings.Index(text, ".visible .entry ")
		at := entry + len(".visible .entry ") + r.IntN(strings.LastIndex(text, "}")-entry-len(".visible .entry "))
		return text[:at], fmt.Sprintf("at byte %d", at)
	}},
}

var (
	number   = regexp.MustCompile(`\b\d+\b`)
	typeName = regexp.MustCompile(`\.[bsuf](8|16|32|64)\b`)
	register = regexp.MustCompile(`%[a-z]+\d+`)
)

// editLine replaces a line.
func editLine(r *rand.Rand, text string, edit func(string) string) (string, string) {
	lines := strings.SplitAfter(text, "\n")
	i := r.IntN(len(lines))
	description := fmt.Sprintf("line %d: %q", i+1, lines[i])
	lines[i] = edit(lines[i])
	return strings.Join(lines, ""), description
}

// editWord replaces a match of a pattern by one of several words.
func editWord(r *rand.Rand, text string, pattern *regexp.Regexp, words ...string) (string, string) {
	all := pattern.FindAllStringIndex(text, -1)
	if all == nil {
		return text, "nothing"
	}
	at, word := all[r.IntN(len(all))], words[r.IntN(len(words))]
	return text[:at[0]] + word + text[at[1]:], fmt.Sprintf("line %d: %q for %q", 1+strings.Count(text[:at[0]], "\n"), word, text[at[0]:at[1]])
}

// TestPTXEdits checks that the parser accepts all kernels, and that it rejects or runs each of some
// random changes of them, the same ones each time. A process with limited memory and CPU time does
// this.
func TestPTXEdits(t *testing.T) {
	Require(t)
	if file := os.Getenv("GPUSIM_EDIT"); file != "" {
		tryEdits(t, file)
		return
	}
	file := filepath.Join(t.TempDir(), "edit")
	if out, err := Again(t, t.Name(), "GPUSIM_EDIT="+file); err != nil {
		edit, _ := os.ReadFile(file) // if there is one
		t.Errorf("%v, last edit: %s\n%s", err, edit, out)
	}
}

func tryEdits(t *testing.T, file string) {
	const each, memory, seconds = 2, 8 << 30, 600
	for resource, limit := range map[int]uint64{unix.RLIMIT_AS: memory, unix.RLIMIT_CPU: seconds} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			t.Fatal(err)
		}
	}
	last, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	p, texts := openParser(t), entries()
	accepted, rejected := map[string]int{}, map[string]int{}
	for i, name := range slices.Sorted(maps.Keys(texts)) {
		if why, err := p.check(texts[name]); why != "" || err != nil {
			t.Fatalf("kernel %s: %s %v", name, why, err)
		}
		for j, e := range edits {
			r := rand.New(rand.NewPCG(uint64(i), uint64(j)))
			for range each {
				text, what := e.edit(r, texts[name])
				what = fmt.Sprintf("%s of kernel %s, %s", e.name, name, what)
				if _, err := last.WriteAt(fmt.Appendf(nil, "%-1000s", what), 0); err != nil {
					t.Fatal(err)
				}
				why, err := p.check(text)
				if err != nil || e.rejected && why == "" {
					t.Errorf("%s: rejected: %q, error: %v", what, why, err)
				}
				if why == "" {
					accepted[e.name]++
				} else {
					rejected[e.name]++
				}
			}
		}
	}
	for _, e := range edits {
		t.Logf("%s: %d accepted, %d rejected", e.name, accepted[e.name], rejected[e.name])
		if rejected[e.name] == 0 || !e.rejected && accepted[e.name] == 0 {
			t.Errorf("%s: %d accepted and %d rejected test nothing", e.name, accepted[e.name], rejected[e.name])
		}
	}
}
