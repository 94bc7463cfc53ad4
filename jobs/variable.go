package jobs

import (
	"strings"
	"unicode/utf8"
)

// isEnvKey reports whether a key is [setup.env], or is inside it, also in a sweep. It also
// matches similar names, such as "environment".
func isEnvKey(name string) bool {
	return strings.Contains("."+strings.ReplaceAll(name, `"`, ""), ".setup.env")
}

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

// redactLine removes the values of variables from a diagnostic's source line. It cuts the line at
// the first value at or after place. If a value precedes place, it replaces all text before
// place with blanks.
func (l *layout) redactLine(d *Diagnostic, line span, place int) {
	place = min(place, line.end)
	stop, before, found := line.end, false, false
	for _, v := range l.envValues {
		if v.start >= line.end || v.end <= line.start {
			continue
		}
		found = true
		if v.end <= place {
			before = true
		} else {
			stop = min(stop, max(v.start, line.start))
		}
	}
	if !found {
		return
	}
	place = min(place, stop)
	lead, shown := l.src[line.start:place], l.src[place:stop]
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
