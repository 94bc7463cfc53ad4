package jobs

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/printable"
)

// A Diagnostic is one mistake in a job file.
type Diagnostic struct {
	File       string // as given to Load or Parse; empty for a Job that was not parsed
	Line       int    // from 1; 0 if the mistake has no place, such as a missing key
	Column     int    // from 1, in characters
	Source     string // the whole line, raw; values of setup.env are left out
	Length     int    // characters to underline, at least 1
	Key        string // "slurm.nodes", "train.model.hidden[1]"; empty for broken syntax
	Message    string // what is wrong
	Allowed    string // what would be right, as a phrase; may be empty
	Suggestion string // the key or value that was probably meant; may be empty
}

// Diagnostics are the mistakes of one job file, in file order.
type Diagnostics []Diagnostic

// Error returns what [Diagnostics.Render] writes, without the last newline.
func (ds Diagnostics) Error() string {
	var b bytes.Buffer
	ds.Render(&b) // a buffer does not fail
	return strings.TrimSuffix(b.String(), "\n")
}

// Render writes every diagnostic as people read it: file, line and column, what
// is wrong, the source line with the place underlined, and what would be right.
func (ds Diagnostics) Render(w io.Writer) error {
	for _, d := range ds {
		if err := d.render(w); err != nil {
			return err
		}
	}
	return nil
}

func (d Diagnostic) render(w io.Writer) error {
	var b bytes.Buffer
	if d.File != "" {
		b.WriteString(visible(d.File) + ":")
	}
	if d.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", d.Line, d.Column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	message := d.Message
	if d.Key != "" && strings.HasSuffix(d.File, " "+d.Key) { // "--set train.batch" has named it
		message = strings.TrimPrefix(message, d.Key+": ")
	}
	fmt.Fprintf(&b, "%s\n", visible(message))
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
		help = append(help, visible(d.Allowed))
	}
	if len(help) > 0 {
		fmt.Fprintf(&b, "  %s\n", strings.Join(help, "  "))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Long lines are shown around the mistake only.
const (
	excerptWidth = 110 // characters
	excerptLead  = 40  // of them before the mistake
)

// excerpt returns the part of the source line to show, the blanks that go under
// what stands before the mistake, and the width of the underline.
func (d Diagnostic) excerpt() (source, before string, width int) {
	line := []rune(visible(d.Source))
	from, column := 0, min(d.Column-1, len(line))
	if len(line) > excerptWidth {
		from = max(0, min(column-excerptLead, len(line)-excerptWidth))
	}
	to := min(len(line), from+excerptWidth)
	source = string(line[from:to])
	before = strings.Map(func(r rune) rune {
		if r == '\t' { // as wide as the tab above it
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

// visible makes text safe for a terminal, character by character: a job file
// may hold escape sequences, and the diagnostic about them must not send them.
func visible(s string) string {
	return printable.Mark(strings.ReplaceAll(s, "\n", "\ufffd"))
}
