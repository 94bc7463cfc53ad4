package jobs

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// A span is a byte range of the source. The zero span means that there is no position.
type span struct{ start, end int }

func (s span) known() bool { return s.end > s.start }

// A keyPos is the position of one key.
type keyPos struct {
	key      span   // last part of the key, at its first occurrence
	header   span   // [table], including its brackets
	value    span   // text after "="
	elements []span // elements of an array
	explicit bool   // whether the key has its own line, not only as part of a longer key
}

// A layout contains the position of each key in one file. The TOML decoder reports only the
// lines of values, not the positions of keys, dotted tables, or elements.
type layout struct {
	file      string
	src       string // UTF-8 without a byte order mark
	lines     []int  // offset of each line's first byte
	positions map[string]*keyPos
	keys      []string // all keys as written, in order

	envValues []span // values of setup.env, which may be secrets

	repeated span // second occurrence of a duplicate key
	first    span // first occurrence of that key
	tooDeep  span // position where the nesting exceeds maxDepth
	tooLong  span // key that exceeds maxKeyBytes
	complete bool // whether the scan reached the end of the file

	doc    map[string]any // content of the file with its overrides
	edited bool           // whether doc differs from src

	// over maps keys to the sources of values that do not come from the file. An empty source
	// means that the value comes from the file, although another source set the table around
	// the key.
	over  map[string]origin
	order int // of the last override

	files *fileCache // shared by the trials of a sweep
}

func newLayout(file, src string) *layout {
	l := &layout{file: file, src: src, lines: []int{0}, positions: map[string]*keyPos{}, files: newFileCache()}
	for i := range len(src) {
		if src[i] == '\n' {
			l.lines = append(l.lines, i+1)
		}
	}
	s := scanner{layout: l, tables: map[string]int{}}
	l.complete = s.document()
	return l
}

// keyName returns path as a dotted TOML key. A part from [elementOf] keeps its index.
func keyName(path []string) string {
	parts := make([]string, len(path))
	for i, p := range path {
		base, index := p, ""
		if open := strings.LastIndexByte(p, '['); open > 0 && strings.HasSuffix(p, "]") && isDigits(p[open+1:len(p)-1]) {
			base, index = p[:open], p[open:]
		}
		parts[i] = toml.Key{base}.String() + index
	}
	return strings.Join(parts, ".")
}

// elementOf returns the path of one table in an array of tables.
func elementOf(path []string, i int) []string {
	at := slices.Clone(path)
	at[len(at)-1] = fmt.Sprintf("%s[%d]", at[len(at)-1], i)
	return at
}

// lookup returns the position of a key, or an empty keyPos.
func (l *layout) lookup(key string) keyPos {
	if s, ok := l.positions[key]; ok {
		return *s
	}
	return keyPos{}
}

// diagnosticAt returns a diagnostic without a message for a span of the source.
func (l *layout) diagnosticAt(s span) Diagnostic {
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
	l.redactLine(&d, span{start, start + len(d.Source)}, s.start)
	return d
}

// diagnosticFor returns a diagnostic without a message about the key name at a span. For an
// environment variable, whose value must stay hidden, it points to the variable's name.
func (l *layout) diagnosticFor(name string, where span) Diagnostic {
	if from, ok := l.overrideSource(name); ok {
		return Diagnostic{File: from, Key: name}
	}
	if isEnvKey(name) {
		where = l.envPos(name).key
	}
	d := l.diagnosticAt(where)
	d.Key = name
	return d
}

// at returns a diagnostic without a message for the value of a key.
func (l *layout) at(key string) Diagnostic {
	at := l.lookup(key)
	if !at.value.known() {
		return l.diagnosticFor(key, at.key)
	}
	return l.diagnosticFor(key, at.value)
}

// An origin is the source of an override, and the position of the override among all, from 1.
type origin struct {
	source string
	order  int
}

// overrideSource returns the source of the value of a key, or of a table around it, if the value
// does not come from the file.
func (l *layout) overrideSource(name string) (from string, ok bool) {
	from = l.lastOverride(name).source
	return from, from != ""
}

// lastOverride returns the last override of a key or of a table around it. The time does not depend on the
// number of overrides: a sweep can have tens of thousands.
func (l *layout) lastOverride(name string) (last origin) {
	if len(l.over) == 0 {
		return last
	}
	for i := 1; i <= len(name); i++ {
		if i < len(name) && name[i] != '.' && name[i] != '[' {
			continue
		}
		if o := l.over[name[:i]]; o.order > last.order {
			last = o
		}
	}
	return last
}

// isWithin reports whether name is outer or a key or element inside it.
func isWithin(name, outer string) bool {
	inside, ok := strings.CutPrefix(name, outer)
	return ok && (inside == "" || inside[0] == '.' || inside[0] == '[')
}

// line returns the number of the line that contains the offset, from 1.
func (l *layout) line(offset int) int {
	return sort.SearchInts(l.lines, offset+1)
}
