package jobs

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
)

// isEnvKey reports whether a key is [setup.env], or is inside it, also in a sweep. It also
// matches similar names, such as "environment".
func isEnvKey(name string) bool {
	name = "." + strings.ReplaceAll(name, `"`, "")
	return strings.Contains(name, ".setup.env") || stepEnvKey().MatchString(name)
}

// stepEnvKey matches the variables of a step of [setup].
var stepEnvKey = lazyregexp.New(`\.setup\.steps(\[\d+\])?\.env`)

// envPos returns the position of a variable. name may be an element of its value.
func (l *layout) envPos(name string) keyPos {
	for {
		if at, ok := l.positions[name]; ok {
			return *at
		}
		open := strings.LastIndexByte(name, '[')
		if open < 0 {
			return keyPos{}
		}
		name = name[:open]
	}
}

// redactLine removes the values of variables from a diagnostic's source line. It cuts the line
// at the first value at or after the offset. If a value precedes the offset, it replaces all
// text before the offset with blanks.
func (l *layout) redactLine(d *Diagnostic, line span, offset int) {
	offset = min(offset, line.end)
	stop, before, found := line.end, false, false
	for _, v := range l.envValues {
		if v.start >= line.end || v.end <= line.start {
			continue
		}
		found = true
		if v.end <= offset {
			before = true
		} else {
			stop = min(stop, max(v.start, line.start))
		}
	}
	if !found {
		return
	}
	offset = min(offset, stop)
	lead, shown := l.src[line.start:offset], l.src[offset:stop]
	if before {
		lead = strings.Map(func(r rune) rune {
			if r == '\t' { // keeps the width of the tab
				return r
			}
			return ' '
		}, lead)
	}
	d.Source = lead + shown + "…"
	d.Length = max(1, min(d.Length, utf8.RuneCountInString(shown)))
}

// envWord matches the name of the table of variables in a key.
var envWord = lazyregexp.New(`\benv\b`)

// redactEnv removes the value from a diagnostic's source line if it may be a variable's
// value, which may be a secret. It does so for known values, below a [setup.env] header, and
// if "env" occurs earlier in the line. The file may be invalid.
func (l *layout) redactEnv(d *Diagnostic, offset int) bool {
	if slices.ContainsFunc(l.envValues, func(v span) bool { return v.start <= offset && offset < v.end }) {
		return true // already hidden
	}
	key, _, found := strings.Cut(d.Source, "=")
	before := l.src[l.lines[l.line(offset)-1]:offset]
	header, _, _ := strings.Cut(l.lastHeader(offset), "\n")
	if !strings.Contains(key, "env") && !envWord().MatchString(before) && !strings.Contains(header, "setup.env") {
		return false
	}
	if !found {
		key = "…"
	} else {
		key += "= …"
	}
	d.Source, d.Length = key, 1
	return true
}

// lastHeader returns the source from the last table header before the offset.
func (l *layout) lastHeader(offset int) string {
	for n := l.line(offset); n > 0; n-- {
		if line := strings.TrimLeft(l.src[l.lines[n-1]:], " \t"); strings.HasPrefix(line, "[") {
			return line
		}
	}
	return ""
}
