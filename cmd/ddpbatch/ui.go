package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/watch/screen"
)

// All terminal output follows these rules:
//
//   - Standard output contains only the answer, so that it can be piped.
//   - Standard error contains messages for the user. An error is "ddpbatch: error: action:
//     cause", followed by "ddpbatch: hint: fix". Messages start in lower case and have no
//     final period. Other messages start with "ddpbatch: ".
//   - The diagnostics of a job file come first. Each has a file, line, and column in the
//     format that editors recognize. An error with their count follows.
//   - With --json, the answer is one JSON value. Commands that stream print one value per
//     line. Messages stay on standard error.
//   - On a terminal, no line is wider than the terminal. Text wraps, and table columns that do
//     not fit move below their row (screen.Table). Paths and commands in backquotes are not
//     broken. If the output is not a terminal, lines are not wrapped, so that grep finds them.
//   - No output controls the terminal. Control characters are removed from names and messages
//     (package printable), and escaped in JSON. There are no colors. Only "ddpbatch logs"
//     copies the job's output unchanged.
//   - As an exception, "launch", "logs -f", and "top" draw a live view on a terminal (live.go,
//     top.go). The view is below the printed lines, disappears at the end, and uses colors
//     unless NO_COLOR is set. The flag --plain and TERM=dumb disable it.

// usageRewrites maps kong's usage errors, which name Go types and parser tokens, to messages for
// users.
var usageRewrites = []struct {
	from func() *regexp.Regexp
	to   string
}{
	{lazyregexp.New(`expected \w+ value but got "EOL" \(<EOL>\)$`), "needs a value"},
	{lazyregexp.New(`expected u?int\d* value but got "(-\d+)" \(short flag\); perhaps try .*$`), "must not be negative: $1"},
	{lazyregexp.New(`expected a valid \d+ bit u?int but got ("[^"]*")$`), "must be an integer, not $1"},
	{lazyregexp.New(`^expected "(<.*)"$`), "missing argument: $1"},
}

// rewriteUsage returns kong's message with all usageRewrites applied.
func rewriteUsage(message string) string {
	for _, r := range usageRewrites {
		message = r.from().ReplaceAllString(message, r.to)
	}
	return message
}

// report prints err and its hint to w. For usage errors, it also prints the command's usage
// line.
func report(w io.Writer, err error, usage string) {
	var printed printedError
	var ended exitError
	if err == nil || errors.As(err, &printed) || errors.As(err, &ended) && ended.err == nil {
		return
	}
	var spec jobs.Diagnostics
	if errors.As(err, &spec) {
		// If writing to the terminal fails, another message would fail as well.
		_ = spec.Render(w)
		err = fmt.Errorf("%s", format.Count(len(spec), "error")+inFile(spec))
	}
	message := rewriteUsage(err.Error())
	var parsed *kong.ParseError
	if errors.As(err, &parsed) {
		message = dropUnlikelyGuess(message)
	}
	say(w, "error: %s", message)
	if hint := hints.Of(err); hint != "" {
		say(w, "hint: %s", hint)
	}
	var parse *kong.ParseError
	var wrong usageError
	if usage != "" && (errors.As(err, &parse) || errors.As(err, &wrong)) {
		say(w, "hint: usage: %s", usage)
	}
}

// guess matches the suggestions that kong appends to an error about an unknown word.
var guess = lazyregexp.New(`(\S+), did you mean (?:one of )?("[^?]*")\?$`)

// dropUnlikelyGuess removes kong's suggestions if none is close to the word. Kong accepts two
// typing errors even in a word of two letters.
func dropUnlikelyGuess(message string) string {
	m := guess().FindStringSubmatchIndex(message)
	if m == nil {
		return message
	}
	word, rest := message[m[2]:m[3]], message[:m[3]]
	var names []string
	for quoted := range strings.SplitSeq(message[m[4]:m[5]], ", ") {
		names = append(names, strings.Trim(quoted, `"`))
	}
	bare := func(s string) string { return strings.TrimLeft(s, "-") }
	for _, name := range names {
		if jobs.Nearest(bare(word), []string{bare(name)}) != "" {
			return message
		}
	}
	return rest
}

// inFile returns " in FILE" if all diagnostics are for the same file, and "" otherwise.
func inFile(spec jobs.Diagnostics) string {
	for _, d := range spec {
		if d.File != spec[0].File || d.File == "" {
			return ""
		}
	}
	return " in " + spec[0].File
}

// say prints a message for the user. It removes control characters and wraps lines to the
// terminal. It indents further lines of the message, so that a line end in the name of another
// user's file cannot start a message of its own.
func say(w io.Writer, format string, args ...any) {
	if k, ok := w.(*teeWriter); ok {
		say(k.log, format, args...)
		w = k.Writer
	}
	const from = "ddpbatch: "
	start := from
	for paragraph := range strings.SplitSeq(printable.Text(fmt.Sprintf(format, args...)), "\n") {
		for _, line := range screen.Wrap(start+paragraph, columnsOf(w), len(from)) {
			fmt.Fprintln(w, line)
		}
		start = strings.Repeat(" ", len(from))
	}
}

// note prints a message for the user to standard error.
func (p *program) note(format string, args ...any) { say(p.Stderr, format, args...) }

// printf prints a part of the answer to standard output.
func (p *program) printf(format string, args ...any) {
	fmt.Fprint(p.Stdout, printable.Text(fmt.Sprintf(format, args...)))
}

// printJSON prints the answer as one JSON value.
func (p *program) printJSON(v any) error {
	return p.encode(v, "  ")
}

// printJSONLine prints a part of the answer as one line of JSON.
func (p *program) printJSONLine(v any) error {
	return p.encode(v, "")
}

func (p *program) encode(v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", indent)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := p.Stdout.Write(printable.JSON(b.Bytes()))
	return err
}

// table prints rows below a header, in aligned columns.
func (p *program) table(header []string, rows [][]string) {
	for _, row := range rows {
		for i, cell := range row {
			row[i] = printable.Line(cell)
		}
	}
	p.printTable(screen.Table{Header: header, Rows: rows})
}

// printTable prints a table whose cells have no control characters.
func (p *program) printTable(t screen.Table) {
	for _, line := range t.Wrapped(columnsOf(p.Stdout)) {
		fmt.Fprintln(p.Stdout, line)
	}
}

// columnsOf returns the maximum line width for w. It returns 0, for unlimited, if w is not a
// terminal, so that programs can parse the lines.
func columnsOf(w io.Writer) int {
	if f, ok := fileOf(w); ok {
		return screen.Columns(f)
	}
	return 0
}

// wrapf prints a paragraph of the answer. It indents all lines but the first by indent spaces.
func (p *program) wrapf(indent int, format string, args ...any) {
	for _, line := range screen.Wrap(printable.Text(fmt.Sprintf(format, args...)), columnsOf(p.Stdout), indent) {
		fmt.Fprintln(p.Stdout, strings.TrimRight(line, " "))
	}
}

// writeError returns the first error in writing the answer, or nil.
func (p *program) writeError() error {
	if s := streamOf(p.Stdout); s != nil {
		return s.writeError()
	}
	return nil
}

// listed joins words with commas for a message.
func listed(words []string) string { return strings.Join(words, ", ") }

// shellQuote quotes a word for a POSIX shell.
func shellQuote(word string) string { return jobs.ShellQuote(word) }
