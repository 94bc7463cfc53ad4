package secrets

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Errors in a line. No message contains the text of the line, because it may be a secret. For
// example, a key of a service may be at the position of a name.
const (
	noEquals    = "has no =; write NAME=VALUE"
	badName     = "the text before = is not a variable name (letters, digits, and _, without spaces around it)"
	notText     = "the value contains a control character or is not UTF-8"
	openQuote   = "the value starts with a quote but does not end with it"
	innerQuote  = "the value contains the quote that encloses it; use the other kind of quote"
	bareSpace   = "the value contains spaces but is not quoted"
	sameAsAbove = "sets the same name as line %d"
)

// parse parses the lines of a secrets file.
func parse(text string) (map[string]string, error) {
	values := map[string]string{}
	lines := map[string]int{}
	text = strings.TrimPrefix(text, "\ufeff") // some editors on Windows add a byte order mark
	number := 0
	for line := range strings.SplitSeq(text, "\n") {
		number++
		line = strings.Trim(strings.TrimSuffix(line, "\r"), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, wrong := parseLine(line)
		if wrong != "" {
			return nil, fmt.Errorf("line %d: %s", number, wrong)
		}
		if before := lines[name]; before > 0 {
			return nil, fmt.Errorf("line %d: "+sameAsAbove, number, before)
		}
		values[name], lines[name] = value, number
	}
	return values, nil
}

// parseLine splits a line into name and value. wrong is the error message, or empty.
func parseLine(line string) (name, value, wrong string) {
	if rest, ok := strings.CutPrefix(line, "export"); ok && strings.Trim(rest, " \t") != rest {
		line = strings.Trim(rest, " \t")
	}
	name, value, ok := strings.Cut(line, "=")
	switch {
	case !ok:
		return "", "", noEquals
	case !isName(name):
		return "", "", badName
	case !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl):
		return "", "", notText
	case value == "":
		return name, "", ""
	}
	quote := value[0]
	if quote != '"' && quote != '\'' {
		if strings.ContainsFunc(value, unicode.IsSpace) {
			return "", "", bareSpace
		}
		return name, value, ""
	}
	inner, closed := strings.CutSuffix(value[1:], string(quote))
	switch {
	case !closed:
		return "", "", openQuote
	case strings.IndexByte(inner, quote) >= 0:
		return "", "", innerQuote
	}
	return name, inner, ""
}

// isName reports whether s is a valid name of an environment variable (POSIX, 3.216).
func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
