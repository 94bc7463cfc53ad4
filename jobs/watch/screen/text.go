package screen

import (
	"strings"
	"unicode/utf8"
)

// Width returns the number of columns of a line, without its SGR sequences. It counts each
// character as one column, because [Clip] replaces wider characters.
func Width(line string) int { return utf8.RuneCountInString(StripColors(line)) }

// StripColors returns a text without SGR sequences.
func StripColors(text string) string {
	var out strings.Builder
	for text != "" {
		before, after, _ := strings.Cut(text, "\x1b[")
		out.WriteString(before)
		_, text, _ = strings.Cut(after, "m")
	}
	return out.String()
}

// Clip truncates a text without control sequences to a width. It replaces characters that are
// two columns wide with question marks.
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

// wide reports whether a character is two columns wide, as an approximation.
func wide(r rune) bool { return r >= 0x1100 && !(r >= 0x2010 && r < 0x2e80) }

const ellipsis = "..."

// Cut truncates a text like [Clip], and marks the omission with an ellipsis.
func Cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width || width <= len(ellipsis) {
		return Clip(text, width)
	}
	return Clip(text, width-len(ellipsis)) + ellipsis
}

// Shorten replaces the middle of a name with an ellipsis, because names of runs differ at
// their ends.
func Shorten(name string, width int) string {
	if columns(name) <= width || width <= len(ellipsis) {
		return prefix(name, width)
	}
	tail := (width - len(ellipsis)) / 2
	return prefix(name, width-len(ellipsis)-tail) + ellipsis + suffix(name, tail)
}

// prefix returns the longest prefix of a text that has at most width columns.
func prefix(text string, width int) string {
	for i, r := range text {
		if width -= columns(string(r)); width < 0 {
			return text[:i]
		}
	}
	return text
}

// suffix returns the longest suffix of a text that has at most width columns.
func suffix(text string, width int) string {
	i := len(text)
	for i > 0 {
		r, size := utf8.DecodeLastRuneInString(text[:i])
		if width -= columns(string(r)); width < 0 {
			break
		}
		i -= size
	}
	return text[i:]
}

// Wrap breaks a text at spaces into lines of at most width columns. It indents all lines
// except the first by indent spaces. Text that users copy stays in one piece: a command in
// backquotes if it fits into a line, and a word such as a path even if it is longer than a
// line. Width 0 means no limit.
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

// A piece is a part of a text that stays on one line. Gap is the number of spaces before it.
type piece struct {
	gap  int
	text string
}

// pieces splits a text into words. It joins the words between two backquotes if they fit into
// width.
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
		whole, n := joinQuoted(words, width)
		all = append(all, whole)
		words = words[n:]
	}
	return all
}

// joinQuoted returns the first n words as one piece: the first word and, if it opens a backquote, the
// words up to the one that closes it. It returns only the first word if no word closes the backquote,
// or if the piece does not fit into width. It reads no more words than fit, because a text of another
// user may have millions.
func joinQuoted(words []piece, width int) (whole piece, n int) {
	used, quotes := 0, 0
	for n = range words {
		w := words[n]
		if n > 0 {
			used += w.gap
		}
		used += columns(w.text)
		quotes += strings.Count(w.text, "`")
		if used > width {
			break
		}
		if quotes%2 == 1 {
			continue
		}
		whole = words[0]
		for _, w := range words[1 : n+1] {
			whole.text += strings.Repeat(" ", w.gap) + w.text
		}
		return whole, n + 1
	}
	return words[0], 1
}

// columns returns the number of columns of a text without control sequences.
func columns(text string) int {
	n := 0
	for _, r := range text {
		if n++; wide(r) {
			n++
		}
	}
	return n
}
