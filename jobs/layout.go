package jobs

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// A span is a stretch of the source, in bytes. The zero span is nowhere.
type span struct{ start, end int }

func (s span) known() bool { return s.end > s.start }

// A site is where one key stands.
type site struct {
	key      span   // the key's last part where it is first written
	header   span   // [table], with its brackets
	value    span   // what follows "="
	elements []span // of an array
	explicit bool   // by its own line, not only as a part of a longer key
}

// A layout knows where each key of one file stands. The TOML decoder tells the
// line of a value only, and not of keys, of dotted tables or of elements.
type layout struct {
	file  string
	src   string // UTF-8 without a byte order mark
	lines []int  // offset of each line's first byte
	sites map[string]*site
	keys  []string // every key as written, in order

	variables []span // values of setup.env, which may be secrets

	repeated span // the second of two equal keys
	first    span // the first of them
	tooDeep  span // where the nesting passes maxDepth
	complete bool // the scan reached the end of the file

	doc    map[string]any // what the file says, with what stands over it
	edited bool           // doc is not what src says

	// over has the keys whose values do not come from the file, each with where
	// they do come from; with "" those that come from the file all the same, though
	// the table around them does not.
	over map[string]string
}

func newLayout(file, src string) *layout {
	l := &layout{file: file, src: src, lines: []int{0}, sites: map[string]*site{}}
	for i := range len(src) {
		if src[i] == '\n' {
			l.lines = append(l.lines, i+1)
		}
	}
	s := scanner{layout: l, tables: map[string]int{}}
	l.complete = s.document()
	return l
}

// keyName is the name of a key as one would write it in a dotted key; a part that
// [elementOf] made keeps its index.
func keyName(path []string) string {
	parts := make([]string, len(path))
	for i, p := range path {
		base, index := p, ""
		if open := strings.LastIndexByte(p, '['); open > 0 && strings.HasSuffix(p, "]") && digits(p[open+1:len(p)-1]) {
			base, index = p[:open], p[open:]
		}
		parts[i] = toml.Key{base}.String() + index
	}
	return strings.Join(parts, ".")
}

// elementOf is the path of one table of an array of tables.
func elementOf(path []string, i int) []string {
	at := slices.Clone(path)
	at[len(at)-1] = fmt.Sprintf("%s[%d]", at[len(at)-1], i)
	return at
}

// lookup returns where a key stands, or an empty site.
func (l *layout) lookup(key string) site {
	if s, ok := l.sites[key]; ok {
		return *s
	}
	return site{}
}

// place returns an empty diagnostic for a stretch of the source.
func (l *layout) place(s span) Diagnostic {
	d := Diagnostic{File: l.file}
	if !s.known() {
		return d
	}
	line := l.line(s.start)
	start, end := l.lines[line-1], len(l.src)
	if line < len(l.lines) {
		end = l.lines[line] - 1
	}
	d.Source = strings.TrimSuffix(l.src[start:end], "\r")
	end = max(s.start, min(s.end, start+len(d.Source)))
	d.Line = line
	d.Column = utf8.RuneCountInString(l.src[start:s.start]) + 1
	d.Length = max(1, utf8.RuneCountInString(l.src[s.start:end]))
	l.hide(&d, span{start, start + len(d.Source)}, s.start)
	return d
}

// point returns a diagnostic about a key at a place. For a variable, whose value is
// not shown, the place is its key's.
func (l *layout) point(name string, where span) Diagnostic {
	if from, ok := l.overridden(name); ok {
		return Diagnostic{File: from, Key: name}
	}
	if ofVariable(name) {
		where = l.variable(name).key
	}
	d := l.place(where)
	d.Key = name
	return d
}

// at returns an empty diagnostic for the value of a key.
func (l *layout) at(key string) Diagnostic {
	at := l.lookup(key)
	if !at.value.known() {
		return l.point(key, at.key)
	}
	return l.point(key, at.value)
}

// overridden says where the value of a key, or of what it is inside of, came from
// if not from the file.
func (l *layout) overridden(name string) (from string, ok bool) {
	nearest := ""
	for key, f := range l.over {
		if within(name, key) && len(key) > len(nearest) {
			nearest, from = key, f
		}
	}
	return from, from != ""
}

// within reports whether a key is a table's or an array's own or inside of it.
func within(name, outer string) bool {
	inside, ok := strings.CutPrefix(name, outer)
	return ok && (inside == "" || inside[0] == '.' || inside[0] == '[')
}

// line is the number of the line that holds the offset, from 1.
func (l *layout) line(offset int) int {
	return sort.SearchInts(l.lines, offset+1)
}
