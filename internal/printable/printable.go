// Package printable makes text of other users safe to print.
//
// Names, messages, and files of other users may contain characters that control a terminal
// (escape sequences), that reorder the text around them (bidirectional controls, see
// CVE-2021-42574), or that are invisible. The functions of this package remove, mark, or escape
// them. They do not escape text for shells or HTML.
package printable

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// IsControl reports whether r controls a terminal, ends a line, or reorders the text around it:
// C0 and C1 controls, DEL, the Unicode line separators, and the bidirectional controls.
func IsControl(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
}

// IsVisible reports whether r has a glyph, or is a space. It returns false for white space of other
// kinds, for format characters such as a zero-width space, and for letters, marks, and symbols without
// a glyph, such as the Hangul filler.
func IsVisible(r rune) bool {
	return unicode.IsPrint(r) && !unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) &&
		(!unicode.Is(unicode.Variation_Selector, r) || r == textStyle || r == emojiStyle) && r != brailleBlank
}

const (
	textStyle    = '\uFE0E' // shows the character before it as text
	emojiStyle   = '\uFE0F' // shows the character before it as an emoji
	brailleBlank = '\u2800'
)

// isShown reports whether r is visible or plain white space.
func isShown(r rune) bool {
	return IsVisible(r) || unicode.IsSpace(r) && !IsControl(r)
}

// Text removes invisible characters from s, except line ends and tabs. Bytes that are not UTF-8
// become U+FFFD.
func Text(s string) string { return replace(s, -1) }

// Mark replaces invisible characters of s, except line ends and tabs, with U+FFFD.
func Mark(s string) string { return replace(s, utf8.RuneError) }

// replace replaces invisible characters of s, except line ends and tabs. It removes them if by is
// negative.
func replace(s string, by rune) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || isShown(r) {
			return r
		}
		return by
	}, s)
}

// Line returns s as one line. It removes invisible characters, replaces white space with single
// spaces, and trims the ends.
func Line(s string) string {
	return strings.Join(strings.Fields(spaced(s)), " ")
}

// spaced removes invisible characters, and replaces white space except tabs with spaces.
func spaced(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return r
		case unicode.IsSpace(r):
			return ' '
		case !isShown(r):
			return -1
		}
		return r
	}, s)
}

// Shorten returns s if it has at most limit bytes, and otherwise the characters that fit into
// limit bytes, followed by " ...".
func Shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + " ..."
}

// tabWidth is the number of spaces that replace a tab in [Verbatim].
const tabWidth = 4

// Verbatim returns s as one line, with the spaces between words and at the start. It removes
// invisible characters, and replaces other white space with spaces.
func Verbatim(s string) string {
	return strings.TrimRight(strings.ReplaceAll(spaced(s), "\t", strings.Repeat(" ", tabWidth)), " ")
}

// JSON replaces invisible characters of a JSON text with escapes such as \u009b, which do not
// change its value. Line ends and tabs between values stay. The text must be valid JSON.
func JSON(text []byte) []byte {
	hidden := func(r rune) bool { return r != '\n' && r != '\t' && !isShown(r) }
	if bytes.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		switch {
		case !hidden(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}
