package screen

import (
	"strings"
	"unicode/utf8"
)

// Width is how many columns a line with SGR sequences takes.
func Width(line string) int {
	n := 0
	for {
		at := strings.Index(line, "\x1b[")
		if at < 0 {
			return n + utf8.RuneCountInString(line)
		}
		n += utf8.RuneCountInString(line[:at])
		end := strings.IndexByte(line[at:], 'm')
		if end < 0 {
			return n
		}
		line = line[at+end+1:]
	}
}

// Clip cuts a text without sequences to a width. Characters that take two columns become
// question marks.
func Clip(text string, width int) string {
	var out []rune
	for _, r := range text {
		if len(out) == width {
			break
		}
		if wide(r) {
			r = '?'
		}
		out = append(out, r)
	}
	return string(out)
}

// wide says whether a character takes two columns, roughly.
func wide(r rune) bool { return r >= 0x1100 && !(r >= 0x2010 && r < 0x2e80) }

const ellipsis = "..."

// Cut is [Clip], and says that something is left out.
func Cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width || width <= len(ellipsis) {
		return Clip(text, width)
	}
	return Clip(text, width-len(ellipsis)) + ellipsis
}

// Shorten takes out the middle of a name: names of runs differ at their ends.
func Shorten(name string, width int) string {
	r := []rune(name)
	if len(r) <= width || width <= len(ellipsis) {
		return string(r[:min(len(r), width)])
	}
	tail := (width - len(ellipsis)) / 2
	return string(r[:width-len(ellipsis)-tail]) + ellipsis + string(r[len(r)-tail:])
}

// Wrap breaks a text at its spaces into lines of a width, all but the first of which begin
// with indent spaces. What people copy stays in one piece: a command in backquotes that fits
// into a line, and a word such as a path even if it is longer than that. Width 0 is
// without bound.
func Wrap(text string, width, indent int) []string {
	if width <= 0 || columns(text) <= width {
		return []string{text}
	}
	var lines []string
	line, used, words := "", 0, 0
	for _, p := range pieces(text, width-indent) {
		n := columns(p.text)
		if words > 0 && used+p.gap+n > width {
			lines = append(lines, line)
			line, used, words, p.gap = strings.Repeat(" ", indent), indent, 0, 0
		}
		line += strings.Repeat(" ", p.gap) + p.text
		used, words = used+p.gap+n, words+1
	}
	return append(lines, line)
}

// piece is a part of a text that stays on one line, and how many spaces are before it.
type piece struct {
	gap  int
	text string
}

// pieces are the words of a text, those between backquotes together where they fit.
func pieces(text string, width int) []piece {
	var words []piece
	for text != "" {
		rest := strings.TrimLeft(text, " ")
		end := strings.IndexByte(rest, ' ')
		if end < 0 {
			end = len(rest)
		}
		if rest != "" {
			words = append(words, piece{len(text) - len(rest), rest[:end]})
		}
		text = rest[end:]
	}
	var all []piece
	for len(words) > 0 {
		whole, n := words[0], 1
		for strings.Count(whole.text, "`")%2 == 1 && n < len(words) {
			whole.text += strings.Repeat(" ", words[n].gap) + words[n].text
			n++
		}
		if columns(whole.text) > width {
			whole, n = words[0], 1
		}
		all = append(all, whole)
		words = words[n:]
	}
	return all
}

// columns is how many a text without sequences takes.
func columns(text string) int {
	n := 0
	for _, r := range text {
		if n++; wide(r) {
			n++
		}
	}
	return n
}
