package jobs

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ddpbatch/ddpbatch/internal/printable"
)

// Name is a job's name: 1 to 128 printable characters. It also names the run
// folder, so it holds no slash, starts with neither "-" nor ".", and fits the
// 255 bytes that Linux gives a file name. Spaces, quotes and # are allowed.
type Name string

// Word is a non-empty string without white space or control characters that
// does not start with "-": a partition, an account, a module.
type Word string

// Text is a string without control characters. It may be empty.
type Text string

const (
	maxNameChars = 128
	maxNameBytes = 255 // NAME_MAX of Linux
)

// UnmarshalTOML takes a TOML string.
func (n *Name) UnmarshalTOML(v any) error {
	const allowed = "allowed: 1 to 128 printable characters, none of / # \" ' ` \\, not starting with \"-\" or \".\""
	s, err := stringValue(v)
	if err != nil {
		return err
	}
	if err := checkShown(s); err != nil {
		return refuse(allowed, "%s", err)
	}
	switch {
	case s == "":
		return refuse(allowed, "is empty")
	case strings.Contains(s, "/"):
		return refuse(allowed, `%q holds a "/", but it names the run folder`, s)
	case strings.ContainsAny(s, "#\"'`\\"):
		// Each could be quoted in the script, but not in what people and site
		// tools make of squeue's output and of the folder's name.
		return refuse(allowed, "%q holds a %q", s, s[strings.IndexAny(s, "#\"'`\\")])
	case strings.HasPrefix(s, "-"), strings.HasPrefix(s, "."):
		return refuse(allowed, "%q starts with %q", s, s[:1])
	case utf8.RuneCountInString(s) > maxNameChars:
		return refuse(allowed, "is %d characters long", utf8.RuneCountInString(s))
	case len(s) > maxNameBytes:
		return refuse(allowed, "takes %d bytes, but a file name has at most %d", len(s), maxNameBytes)
	}
	*n = Name(s)
	return nil
}

// UnmarshalTOML takes a TOML string.
func (w *Word) UnmarshalTOML(v any) error {
	const allowed = `allowed: one word without spaces, not starting with "-"`
	s, err := stringValue(v)
	if err != nil {
		return err
	}
	if err := checkShown(s); err != nil {
		return refuse(allowed, "%s", err)
	}
	switch {
	case s == "":
		return refuse(allowed, "is empty: leave the key out for the site's default")
	case strings.ContainsFunc(s, unicode.IsSpace):
		return refuse(allowed, "%q holds a space", s)
	case strings.HasPrefix(s, "-"):
		return refuse(allowed, "%q starts with \"-\" and would be read as an option", s)
	}
	*w = Word(s)
	return nil
}

// UnmarshalTOML takes a TOML string. The error never holds the value.
func (t *Text) UnmarshalTOML(v any) error {
	s, err := stringValue(v)
	if err != nil {
		return err
	}
	if err := noControl(s); err != nil {
		return err
	}
	*t = Text(s)
	return nil
}

// noControl refuses what could break out of one line of a script or a terminal:
// control characters, the Unicode line separators, and the marks that reorder
// the text around them (a reader would see another value than the shell).
func noControl(s string) error {
	for _, r := range s {
		if printable.IsControl(r) {
			return refuse("", "holds the control character %U, which no value may", r)
		}
	}
	return nil
}

// checkShown refuses control characters and everything else that does not show,
// such as a zero-width or a
// no-break space.
func checkShown(s string) error {
	if err := noControl(s); err != nil {
		return err
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return refuse("", "holds the invisible character %U", r)
		}
	}
	return nil
}
