package jobs

import (
	"strings"

	"github.com/BurntSushi/toml"
)

// maxDepth is the maximum number of parts of a key, and the maximum nesting of values. The
// spec needs about ten, in a sweep. The TOML decoder needs quadratic time in the length of a dotted key.
const maxDepth = 16

// maxKeyBytes is the maximum length of a key, with the names of the tables around it. Names of variables
// are the longest keys of the spec. The scanner and the TOML decoder store the whole name of each key, so
// a long name of a table would be stored for each of its keys.
const maxKeyBytes = 256

// A scanner finds the positions of the keys in a TOML document. It stops at the first syntax
// error and leaves the error message to the TOML decoder. It finds all keys of a document that
// the decoder accepts.
type scanner struct {
	*layout
	pos    int
	arrays bool           // whether a key may repeat inside an array of tables
	tables map[string]int // index of the current element of each array of tables
}

// A part is one name in a dotted key.
type part struct {
	name string
	span span
}

func (s *scanner) document() bool {
	var table []string
	for {
		s.skip(" \t\r\n")
		switch s.peek() {
		case 0:
			return s.pos == len(s.src)
		case '[':
			header, ok := s.header()
			if !ok {
				return false
			}
			table = header
		default:
			if !s.keyValue(table, 0) {
				return false
			}
		}
		s.skip(" \t\r")
		if c := s.peek(); c != '\n' && s.pos != len(s.src) {
			return false
		}
	}
}

// header reads [a.b] or [[a.b]] and returns the path.
func (s *scanner) header() ([]string, bool) {
	start, array := s.pos, false
	s.pos++
	if s.peek() == '[' {
		s.pos++
		array, s.arrays = true, true
	}
	parts, ok := s.dottedKey(0)
	if !ok || s.peek() != ']' || !s.checkLength(nil, parts) {
		return nil, false
	}
	s.pos++
	if array {
		if s.peek() != ']' {
			return nil, false
		}
		s.pos++
	}
	if array {
		s.nextTable(parts)
	}
	path, name := s.record(nil, parts)
	if at := s.positions[name]; !at.header.known() {
		at.header = span{start, s.pos}
	}
	if name := keyName(path); array && s.positions[name] == nil { // the position of the whole array is its first table
		s.positions[name] = &keyPos{key: parts[len(parts)-1].span, header: span{start, s.pos}}
	}
	return path, true
}

// keyValue reads key = value in a table.
func (s *scanner) keyValue(table []string, depth int) bool {
	parts, ok := s.dottedKey(depth)
	if !ok || s.peek() != '=' || !s.checkLength(table, parts) {
		return false
	}
	s.pos++
	s.skip(" \t")
	path, name := s.record(table, parts)
	at := s.positions[name]
	again := at.value.known() // repeated inside an array of tables; use the first
	start := s.pos
	elements, ok := s.value(path, depth+len(parts))
	variable := isEnvKey(strings.Join(path, "."))
	if !ok || s.pos == start {
		if variable { // the end of the value is unknown
			s.envValues = append(s.envValues, span{start, len(s.src)})
		}
		return false
	}
	if !again {
		at.value, at.elements = span{start, s.pos}, elements
	}
	if variable && s.src[start] != '{' { // for a table, its own values are added
		s.envValues = append(s.envValues, span{start, s.pos})
	}
	return true
}

// record stores the positions of the parts of a key. It returns the whole path and its name, see nameOf.
func (s *scanner) record(table []string, parts []part) (path []string, name string) {
	path = append([]string(nil), table...)
	key, name := s.nameOf(table)
	for i, p := range parts {
		path = append(path, p.name)
		key, name = s.appendName(key, name, p.name)
		at, ok := s.positions[name]
		if !ok {
			at = &keyPos{key: p.span}
			s.positions[name] = at
		}
		if i < len(parts)-1 {
			continue
		}
		if at.explicit && !s.arrays && !s.repeated.known() {
			s.first, s.repeated = at.key, p.span
		}
		at.explicit = true
		s.keys = append(s.keys, key)
	}
	return path, name
}

// nextTable starts the next element of an array of tables, [[a.b]].
func (s *scanner) nextTable(parts []part) {
	var path []string
	for _, p := range parts {
		path = append(path, p.name)
	}
	name := keyName(path)
	if i, ok := s.tables[name]; ok {
		s.tables[name] = i + 1
	} else {
		s.tables[name] = 0
	}
}

// nameOf returns a path as a dotted key, and the name under which the position of the key is stored. The
// name includes the index of each array of tables around the key.
func (s *scanner) nameOf(path []string) (key, name string) {
	for _, last := range path {
		key, name = s.appendName(key, name, last)
	}
	return key, name
}

// appendName appends the last part of a path to the results of nameOf.
func (s *scanner) appendName(key, name, last string) (string, string) {
	dotted := func(table, last string) string {
		if last = keyName([]string{last}); table == "" {
			return last
		}
		return table + "." + last
	}
	key = dotted(key, last)
	if i, ok := s.tables[key]; ok {
		last = elementOf([]string{last}, i)[0]
	}
	return key, dotted(name, last)
}

// dottedKey reads a dotted key and the blanks around it.
func (s *scanner) dottedKey(depth int) ([]part, bool) {
	var parts []part
	for {
		s.skip(" \t")
		start := s.pos
		var name string
		switch s.peek() {
		case '"', '\'':
			var ok bool
			if name, ok = s.quotedKey(); !ok {
				return nil, false
			}
		default:
			for s.pos < len(s.src) && bareKeyChar(s.src[s.pos]) {
				s.pos++
			}
			if s.pos == start {
				return nil, false
			}
			name = s.src[start:s.pos]
		}
		if !s.checkDepth(depth+len(parts), start) {
			return nil, false
		}
		parts = append(parts, part{name, span{start, s.pos}})
		s.skip(" \t")
		if s.peek() != '.' {
			return parts, true
		}
		s.pos++
	}
}

// quotedKey reads "a" or 'a'. It lets the TOML decoder interpret escapes, which are rare in
// keys.
func (s *scanner) quotedKey() (string, bool) {
	start := s.pos
	if !s.str() || strings.Contains(s.src[start:s.pos], "\n") {
		return "", false
	}
	raw := s.src[start:s.pos]
	if raw[0] == '\'' || !strings.Contains(raw, `\`) {
		return raw[1 : len(raw)-1], true
	}
	var doc struct{ K string }
	_, err := toml.Decode("K = "+raw, &doc)
	return doc.K, err == nil
}

// value reads a value. It returns the elements if the value is an array.
func (s *scanner) value(path []string, depth int) ([]span, bool) {
	if !s.checkDepth(depth, s.pos) {
		return nil, false
	}
	switch s.peek() {
	case '"', '\'':
		return nil, s.str()
	case '[':
		return s.array(path, depth+1)
	case '{':
		return nil, s.inlineTable(path, depth+1)
	}
	start := s.pos
	if end := strings.IndexAny(s.src[s.pos:], ",]}#\r\n"); end >= 0 {
		s.pos += end
	} else {
		s.pos = len(s.src)
	}
	s.pos = start + len(strings.TrimRight(s.src[start:s.pos], " \t"))
	return nil, true
}

func (s *scanner) array(path []string, depth int) ([]span, bool) {
	var elements []span
	s.pos++
	name := keyName(path)
	for {
		s.skip(" \t\r\n")
		switch s.peek() {
		case ']':
			s.pos++
			return elements, true
		case '{':
			s.arrays = true
		}
		start := s.pos
		if s.peek() == '{' {
			s.tables[name] = len(elements)
		}
		_, ok := s.value(path, depth)
		delete(s.tables, name)
		if !ok || s.pos == start {
			return nil, false
		}
		elements = append(elements, span{start, s.pos})
		s.skip(" \t\r\n")
		if s.peek() == ',' {
			s.pos++
		} else if s.peek() != ']' {
			return nil, false
		}
	}
}

func (s *scanner) inlineTable(path []string, depth int) bool {
	s.pos++
	for {
		s.skip(" \t\r\n")
		if s.peek() == '}' {
			s.pos++
			return true
		}
		if !s.keyValue(path, depth) {
			return false
		}
		s.skip(" \t\r\n")
		if s.peek() == ',' {
			s.pos++
		} else if s.peek() != '}' {
			return false
		}
	}
}

// str reads a string of any of the four kinds.
func (s *scanner) str() bool {
	quote := s.src[s.pos : s.pos+1]
	long := strings.Repeat(quote, 3)
	if strings.HasPrefix(s.src[s.pos:], long) {
		quote = long
	}
	s.pos += len(quote)
	for s.pos < len(s.src) {
		switch {
		case s.src[s.pos] == '\\' && quote[0] == '"':
			s.pos += 2
		case strings.HasPrefix(s.src[s.pos:], quote):
			s.pos += len(quote)
			// Up to two quotes may directly precede the closing delimiter.
			for range 2 {
				if len(quote) == 3 && s.peek() == quote[0] {
					s.pos++
				}
			}
			return true
		default:
			s.pos++
		}
	}
	return false
}

// skip skips the given characters, and comments if chars contains "\r".
func (s *scanner) skip(chars string) {
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; {
		case strings.IndexByte(chars, c) >= 0:
			s.pos++
		case c == '#' && strings.Contains(chars, "\r"):
			end := strings.IndexByte(s.src[s.pos:], '\n')
			if end < 0 {
				end = len(s.src) - s.pos
			}
			s.pos += end
		default:
			return
		}
	}
}

// peek returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	if s.pos < len(s.src) {
		return s.src[s.pos]
	}
	return 0
}

func (s *scanner) checkDepth(depth, start int) bool {
	if depth < maxDepth {
		return true
	}
	s.tooDeep = span{start, min(start+1, len(s.src))}
	return false
}

// checkLength returns false at a key in a table that exceeds maxKeyBytes.
func (s *scanner) checkLength(table []string, parts []part) bool {
	n := 0
	for _, name := range table {
		n += len(name)
	}
	for _, p := range parts {
		if n += len(p.name); n > maxKeyBytes {
			s.tooLong = span{p.span.start, p.span.start + 1}
			return false
		}
	}
	return true
}

func bareKeyChar(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}
