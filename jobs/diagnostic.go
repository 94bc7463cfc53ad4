package jobs

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/printable"
)

// A Diagnostic is one error in a job file, or one warning about it.
type Diagnostic struct {
	File       string // as passed to Load or Parse, or the override; empty for a Job that was not parsed
	Line       int    // from 1; 0 if the error has no position, such as a missing key
	Column     int    // from 1, in characters
	Source     string // whole line, unescaped, without values of setup.env
	Length     int    // number of characters to underline, at least 1
	Key        string // such as "slurm.nodes" or "train.model.hidden[1]"; empty for a syntax error
	Message    string // description of the error
	Allowed    string // valid values or the fix, as a phrase; may be empty
	Suggestion string // key or value that was probably meant; may be empty
}

// Diagnostics are the errors in one job file, in file order.
type Diagnostics []Diagnostic

// Error returns the output of [Diagnostics.Render] without the last newline.
func (ds Diagnostics) Error() string {
	var b bytes.Buffer
	ds.Render(&b) // writing to a buffer never fails
	return strings.TrimSuffix(b.String(), "\n")
}

// Render writes all diagnostics in human-readable form: position, message, source line with
// the error underlined, and fix. If a diagnostic has a suggestion, Render omits a list of allowed
// values that it has already printed.
func (ds Diagnostics) Render(w io.Writer) error {
	printed := map[string]bool{} // fixes
	for _, d := range ds {
		if d.Suggestion != "" && printed[d.Allowed] {
			d.Allowed = "" // the suggestion is enough, and a list of keys can be long
		}
		printed[d.Allowed] = true
		if err := d.render(w); err != nil {
			return err
		}
	}
	return nil
}

func (d Diagnostic) render(w io.Writer) error {
	var b bytes.Buffer
	if d.File != "" {
		b.WriteString(sanitize(d.File) + ":")
	}
	if d.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", d.Line, d.Column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	message := d.Message
	if d.Key != "" && strings.HasSuffix(d.File, " "+d.Key) { // avoids repeating the key after "--set train.batch"
		message = strings.TrimPrefix(message, d.Key+": ")
	}
	fmt.Fprintf(&b, "%s\n", sanitize(message))
	if d.Line > 0 {
		source, before, width := d.excerpt()
		fmt.Fprintf(&b, "%5d | %s\n", d.Line, source)
		fmt.Fprintf(&b, "      | %s%s\n", before, strings.Repeat("^", width))
	}
	var help []string
	if d.Suggestion != "" {
		help = append(help, fmt.Sprintf("did you mean %q?", d.Suggestion))
	}
	if d.Allowed != "" {
		help = append(help, sanitize(d.Allowed))
	}
	if len(help) > 0 {
		fmt.Fprintf(&b, "  %s\n", strings.Join(help, "  "))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Only part of a long line is printed, around the error.
const (
	excerptWidth = 110 // characters
	excerptLead  = 40  // maximum number of characters before the error
)

// excerpt returns the part of the source line to print, the blanks under the text before the
// error, and the width of the underline.
func (d Diagnostic) excerpt() (source, before string, width int) {
	line := []rune(sanitize(d.Source))
	from, column := 0, min(d.Column-1, len(line))
	if len(line) > excerptWidth {
		from = max(0, min(column-excerptLead, len(line)-excerptWidth))
	}
	to := min(len(line), from+excerptWidth)
	source = string(line[from:to])
	before = strings.Map(func(r rune) rune {
		if r == '\t' { // keeps the width of the tab above
			return r
		}
		return ' '
	}, string(line[from:column]))
	if from > 0 {
		source, before = "…"+source, " "+before
	}
	if to < len(line) {
		source += "…"
	}
	return source, before, max(1, min(d.Length, to-column))
}

// sanitize replaces each unsafe character for output to a terminal. A job file may contain
// escape sequences, and a diagnostic must not send them to the terminal.
func sanitize(s string) string {
	return printable.Mark(strings.ReplaceAll(s, "\n", "\ufffd"))
}
