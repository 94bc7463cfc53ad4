package jobs

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
)

// checkText returns a diagnostic if the file is not UTF-8 text. It runs before the TOML decoder,
// whose messages would be less clear.
func (l *layout) checkText() (Diagnostic, bool) {
	start := l.src[:min(4, len(l.src))]
	if strings.HasPrefix(start, "\xff\xfe") || strings.HasPrefix(start, "\xfe\xff") || strings.Contains(start, "\x00") {
		return Diagnostic{File: l.file, Message: "the file is UTF-16 or binary; save it as UTF-8 text"}, true
	}
	for i, r := range l.src {
		var message string
		switch {
		case r == '\t', r == '\n', r == '\r' && strings.HasPrefix(l.src[i+1:], "\n"):
		case r < ' ' || r == '\x7f':
			message = fmt.Sprintf("the file contains the control character %U", r)
		case r == utf8.RuneError:
			if _, size := utf8.DecodeRuneInString(l.src[i:]); size == 1 {
				message = fmt.Sprintf("byte 0x%02x is not UTF-8; save the file as UTF-8 text", l.src[i])
			}
		}
		if message != "" {
			d := l.diagnosticAt(span{i, i + 1})
			d.Message = message
			l.redactEnv(&d, i)
			return d, true
		}
	}
	return Diagnostic{}, false
}

const textNeedsQuotes = `write strings in quotes, such as "gpu"; write numbers, true, and false without quotes`

// clearerMessages replaces messages of the decoder with messages that do not require knowledge of its
// grammar.
var clearerMessages = []struct {
	pattern       func() *regexp.Regexp
	message, help string
}{
	{lazyregexp.New(`^expected value but found "?(.*?)"? instead`), "expected a value, found $1", textNeedsQuotes},
	{lazyregexp.New(`^expected a top-level item to end with .* but got (.*) instead`), "expected the end of the line, found $1", textNeedsQuotes},
	{lazyregexp.New(`^invalid datetime: (.*)`), "$1 is not a time of day", textNeedsQuotes},
	{lazyregexp.New(`^expected '.' or '=', but got (.*) instead`), `expected "=" after the key, found $1`, ""},
	{lazyregexp.New(`^unexpected EOF; expected key separator '='`), `expected "=" after the key`, ""},
	{lazyregexp.New(`^strings cannot contain newlines`), "the closing quote is missing", ""},
	{lazyregexp.New(`^Key '(.*)' has already been defined\.`), "$1 is a duplicate key", ""},
}

// syntaxError converts the decoder's error to a diagnostic.
func (l *layout) syntaxError(err error) Diagnostic {
	var pe toml.ParseError
	if !errors.As(err, &pe) {
		return Diagnostic{File: l.file, Message: "not valid TOML: " + err.Error()}
	}
	repeated := strings.HasSuffix(pe.Message, "has already been defined.")
	if repeated && l.repeated.known() && l.line(l.repeated.start) == pe.Position.Line {
		d := l.diagnosticAt(l.repeated)
		d.Message = fmt.Sprintf("%q is a duplicate key, first set in line %d", l.src[l.repeated.start:l.repeated.end], l.line(l.first.start))
		l.redactEnv(&d, l.repeated.start)
		return d
	}
	start := max(0, min(pe.Position.Start, len(l.src)-1))
	for start > 0 && !utf8.RuneStart(l.src[start]) {
		start--
	}
	d := l.diagnosticAt(span{start, min(len(l.src), start+max(1, pe.Position.Len))})
	d.Message = "not valid TOML: " + strings.TrimSuffix(pe.Message, ".")
	for _, c := range clearerMessages {
		if m := c.pattern().FindStringSubmatchIndex(pe.Message); m != nil {
			d.Message = "not valid TOML: " + string(c.pattern().ExpandString(nil, c.message, pe.Message, m))
			d.Allowed = c.help
			break
		}
	}
	if help := l.suggestFix(d, start); help != "" {
		d.Allowed = help
	}
	if l.redactEnv(&d, start) {
		d.Message = "not valid TOML, in the environment variables"
		d.Allowed = `allowed: NAME = "value"`
	}
	return d
}

const curlyQuotes = "\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb"

var (
	// pythonLine is the first line of a Python script, apart from comments.
	pythonLine = lazyregexp.New(`^("""|'''|import [A-Za-z_]|from \S+ import )`)
	yamlLine   = lazyregexp.New(`^\s*(- +)?[A-Za-z_][A-Za-z0-9_-]*:(\s|$)`)
	boolWords  = map[string]string{"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}
	bareWord   = lazyregexp.New(`^[A-Za-z]+`)
)

// suggestFix returns the fix for a common cause of a syntax error, or an empty string.
func (l *layout) suggestFix(d Diagnostic, start int) string {
	if help := l.detectFormat(); help != "" {
		return help
	}
	if strings.ContainsAny(d.Source, curlyQuotes) {
		return `write straight quotes (") instead of curly ones`
	}
	if value, ok := boolWords[strings.ToLower(bareWord().FindString(l.src[start:]))]; ok {
		return "write " + value
	}
	return ""
}

// detectFormat returns the fix for a file in another format that is often mistaken for a job
// file, or an empty string.
func (l *layout) detectFormat() string {
	for line := range strings.Lines(l.src) {
		if strings.HasPrefix(line, "#SBATCH ") {
			return "this is a batch script: run `ddpbatch init --from SCRIPT` to convert it"
		}
	}
	for line := range strings.Lines(l.src) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			continue
		case strings.HasPrefix(line, "{"):
			return "this is JSON, but a job file is TOML: write name = \"x\""
		case pythonLine().MatchString(line):
			return "this is a Python script: start it with `ddpbatch launch -- python3 SCRIPT`, or write a job file for it with `ddpbatch init --kind command`"
		case line == "---" || yamlLine().MatchString(line):
			return "this is YAML, but a job file is TOML: write name = \"x\", and [slurm] above the keys of a table"
		}
		return ""
	}
	return ""
}
