package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/watch/screen"
)

// The rules of what the terminal shows. All of it is made here.
//
//   - Standard output is the answer and nothing else: it can be piped.
//   - Standard error is for people: "ddpbatch: error: what failed: why", then
//     "ddpbatch: hint: what to do". No capital first letters, no full stops.
//     What is worth knowing all the same is "ddpbatch: " and a sentence.
//   - The mistakes of a job file come first and in full, each with its place in
//     the form that editors jump to; then an error that counts them.
//   - With --json the answer is one JSON value, or for what comes bit by bit one on
//     each line; messages stay on standard error.
//   - On a terminal no line is wider than that is: sentences are broken, and what has no
//     room in a table stands below its row (layout.go). A path, or a command in
//     backquotes, stays in one piece. Elsewhere lines are whole, so that grep finds them.
//   - Nothing steers the terminal: control characters in names and messages are left
//     out (package printable), escaped in JSON, and there are no colors. Only what
//     "ddpbatch logs" copies is as the job printed it.
//   - But on a terminal, and there alone, "launch", "logs -f" and "top" draw a view that
//     changes (live.go, top.go): below what is printed, gone without a trace at the end,
//     with colours unless NO_COLOR is set. --plain and TERM=dumb leave it out.

// rewrites replace messages of kong about wrong usage, which name Go's types and the
// parser's tokens.
var rewrites = []struct {
	from *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`expected \w+ value but got "EOL" \(<EOL>\)$`), "needs a value"},
	{regexp.MustCompile(`expected u?int\d* value but got "(-\d+)" \(short flag\); perhaps try .*$`), "must not be negative: $1"},
	{regexp.MustCompile(`expected a valid \d+ bit u?int but got ("[^"]*")$`), "must be a whole number, not $1"},
	{regexp.MustCompile(`^expected "(<.*)"$`), "missing argument: $1"},
}

// rewritten returns the message of an error in our words.
func rewritten(message string) string {
	for _, r := range rewrites {
		message = r.from.ReplaceAllString(message, r.to)
	}
	return message
}

// report prints an error. The usage is that of the command, for wrong usage.
func report(w io.Writer, err error, usage string) {
	var quiet silent
	var ended exitError
	if err == nil || errors.As(err, &quiet) || errors.As(err, &ended) && ended.err == nil {
		return
	}
	var spec jobs.Diagnostics
	if errors.As(err, &spec) {
		// The terminal's trouble is not worth another message.
		_ = spec.Render(w)
		err = fmt.Errorf("%s", format.Count(len(spec), "mistake")+where(spec))
	}
	message := rewritten(err.Error())
	var parsed *kong.ParseError
	if errors.As(err, &parsed) {
		message = dropWildGuess(message)
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

// guess is how kong ends an error about a word that it does not know.
var guess = regexp.MustCompile(`(\S+), did you mean (?:one of )?("[^?]*")\?$`)

// dropWildGuess removes kong's suggestions that are not near the word: kong takes two
// typing errors for near, also in a word of two letters.
func dropWildGuess(message string) string {
	m := guess.FindStringSubmatchIndex(message)
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

// where names the file of all the mistakes, if it is one.
func where(spec jobs.Diagnostics) string {
	for _, d := range spec {
		if d.File != spec[0].File || d.File == "" {
			return ""
		}
	}
	return " in " + spec[0].File
}

// say prints a message for people.
func say(w io.Writer, format string, args ...any) {
	if k, ok := w.(*kept); ok {
		say(k.log, format, args...)
		w = k.Writer
	}
	const from = "ddpbatch: "
	for paragraph := range strings.SplitSeq(from+printable.Text(fmt.Sprintf(format, args...)), "\n") {
		for _, line := range screen.Wrap(paragraph, columnsOf(w), len(from)) {
			fmt.Fprintln(w, line)
		}
	}
}

// note tells people what is worth knowing, beside the answer.
func (p *program) note(format string, args ...any) { say(p.Stderr, format, args...) }

// printf prints a part of the answer.
func (p *program) printf(format string, args ...any) {
	fmt.Fprint(p.Stdout, printable.Text(fmt.Sprintf(format, args...)))
}

// printJSON prints the answer as one JSON value.
func (p *program) printJSON(v any) error {
	return p.encode(v, "  ")
}

// printJSONLine prints a part of the answer as a line of JSON.
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

// table prints rows under a header, in columns.
func (p *program) table(header []string, rows [][]string) {
	all := append([][]string{header}, rows...)
	for _, row := range all {
		for i, cell := range row {
			row[i] = cmp.Or(printable.Line(cell), noCell)
		}
	}
	for _, line := range layout(all, columnsOf(p.Stdout)) {
		fmt.Fprintln(p.Stdout, line)
	}
}

// noCell stands in a table where there is nothing.
const noCell = "-"

// columnsOf is how wide lines may be that are printed to w, 0 where it is no terminal:
// there they stay whole, for programs that read them.
func columnsOf(w io.Writer) int {
	if c, ok := w.(*checked); ok {
		w = c.Writer
	}
	if f, ok := w.(*os.File); ok {
		return screen.Columns(f)
	}
	return 0
}

// wrapf prints a paragraph of the answer; lines after its first begin with spaces.
func (p *program) wrapf(indent int, format string, args ...any) {
	for _, line := range screen.Wrap(printable.Text(fmt.Sprintf(format, args...)), columnsOf(p.Stdout), indent) {
		fmt.Fprintln(p.Stdout, strings.TrimRight(line, " "))
	}
}

// checked remembers the first failure to write the answer, such as a full disk
// behind "> FILE", so that no caller needs to look at each write.
type checked struct {
	io.Writer
	err error
}

func (c *checked) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	if err != nil && c.err == nil {
		c.err = fmt.Errorf("write to standard output: %w", err)
	}
	return n, err
}

// unprinted returns why a part of the answer could not be printed, nil if all of it was.
func (p *program) unprinted() error {
	if c, ok := p.Stdout.(*checked); ok {
		return c.err
	}
	return nil
}
