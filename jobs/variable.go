package jobs

import (
	"strings"
	"unicode/utf8"
)

// ofVariable reports whether a key is [setup.env], also of a sweep, or inside of it;
// also where its name is written otherwise, such as "environment".
func ofVariable(name string) bool {
	return strings.Contains("."+strings.ReplaceAll(name, `"`, ""), ".setup.env")
}

// variable returns where a variable stands, of which name may be an element.
func (l *layout) variable(name string) site {
	for {
		if at, ok := l.sites[name]; ok {
			return *at
		}
		open := strings.LastIndexByte(name, '[')
		if open < 0 {
			return site{}
		}
		name = name[:open]
	}
}

// hide leaves the values of variables out of a diagnostic's source line: it ends
// where the first one at or after the place begins, and where one stands before the
// place, blanks take the place of all that does.
func (l *layout) hide(d *Diagnostic, line span, place int) {
	place = min(place, line.end)
	stop, before, found := line.end, false, false
	for _, v := range l.variables {
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
			if r == '\t' { // as wide as the tab that it stands for
				return r
			}
			return ' '
		}, lead)
	}
	d.Source = lead + shown + "…"
	d.Length = max(1, min(d.Length, utf8.RuneCountInString(shown)))
}
