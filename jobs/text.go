package jobs

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ddpbatch/ddpbatch/internal/printable"
)

// A Name is the name of a job: 1 to 128 printable characters. It is also the name of the run
// directory, so it contains no slash, does not start with "-" or ".", and has at most 255
// bytes, the limit of Linux for file names. It may contain spaces, but not quotes, backslashes,
// or #.
type Name string

// A Word is a non-empty string without white space or control characters that does not start
// with "-", such as a partition, an account, or a module.
type Word string

// A Text is a string without control characters. It may be empty.
type Text string

const (
	maxNameChars = 128
	maxNameBytes = 255 // NAME_MAX of Linux
)

// UnmarshalTOML accepts a TOML string.
func (n *Name) UnmarshalTOML(v any) error {
	const allowed = "allowed: 1 to 128 printable characters except / # \" ' ` \\, not starting with \"-\" or \".\""
	s, err := printableValue(v, allowed)
	if err != nil {
		return err
	}
	switch {
	case s == "":
		return valueErrorf(allowed, "is empty")
	case strings.Contains(s, "/"):
		return valueErrorf(allowed, `%q contains a "/", but it is also the name of the run directory`, s)
	case strings.ContainsAny(s, "#\"'`\\"):
		// The script could quote these characters. But users and site tools process the output
		// of squeue and the name of the run directory, often without quoting.
		return valueErrorf(allowed, "%q contains a %q", s, s[strings.IndexAny(s, "#\"'`\\")])
	case strings.HasPrefix(s, "-"), strings.HasPrefix(s, "."):
		return valueErrorf(allowed, "%q starts with %q", s, s[:1])
	case utf8.RuneCountInString(s) > maxNameChars:
		return valueErrorf(allowed, "has %d characters", utf8.RuneCountInString(s))
	case len(s) > maxNameBytes:
		return valueErrorf(allowed, "has %d bytes, but a file name has at most %d", len(s), maxNameBytes)
	}
	*n = Name(s)
	return nil
}

// UnmarshalTOML accepts a TOML string.
func (w *Word) UnmarshalTOML(v any) error {
	const allowed = `allowed: one word without spaces, not starting with "-"`
	s, err := printableValue(v, allowed)
	if err != nil {
		return err
	}
	switch {
	case s == "":
		return valueErrorf(allowed, "is empty: remove the key for the site's default")
	case strings.ContainsFunc(s, unicode.IsSpace):
		return valueErrorf(allowed, "%q contains a space", s)
	case strings.HasPrefix(s, "-"):
		return valueErrorf(allowed, "%q starts with \"-\" and would be read as an option", s)
	}
	*w = Word(s)
	return nil
}

// UnmarshalTOML accepts a TOML string. The error never contains the value.
func (t *Text) UnmarshalTOML(v any) error {
	s, err := stringValue(v)
	if err != nil {
		return err
	}
	if err := checkControl(s); err != nil {
		return err
	}
	*t = Text(s)
	return nil
}

// checkControl rejects characters that could affect other lines of a script or a terminal:
// control characters, the Unicode line separators, and marks that reorder the text around
// them. With such marks, a reader would see a different value from the shell.
func checkControl(s string) error {
	for _, r := range s {
		if printable.IsControl(r) {
			return valueErrorf("", "contains the control character %U", r)
		}
	}
	return nil
}

// checkPrintable rejects control characters and all other invisible characters, such as zero-width
// and no-break spaces, and letters without a glyph.
func checkPrintable(s string) error {
	if err := checkControl(s); err != nil {
		return err
	}
	for _, r := range s {
		if !printable.IsVisible(r) {
			return valueErrorf("", "contains the invisible character %U", r)
		}
	}
	return nil
}

// printableValue returns the value of a TOML string that passes checkPrintable.
func printableValue(v any, allowed string) (string, error) {
	s, err := stringValue(v)
	if err != nil {
		return "", err
	}
	if err := checkPrintable(s); err != nil {
		return "", valueErrorf(allowed, "%s", err)
	}
	return s, nil
}

// Strings converts values of a job file or a site profile, such as the words of argv. It returns nil
// for an empty list.
func Strings[T ~string](values []T) (all []string) {
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}

// ShellQuote quotes a word for any POSIX shell.
func ShellQuote(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_"
	if word != "" && word[0] != '=' && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// TOMLString returns a text as a TOML string. It escapes control characters, which no key accepts.
func TOMLString(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range strings.ToValidUTF8(text, "\ufffd") {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// TOMLList returns words as a TOML array of strings on one line.
func TOMLList(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = TOMLString(w)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
