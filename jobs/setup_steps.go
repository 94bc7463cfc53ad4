package jobs

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
)

// A SetupStep is one step of [setup]: exactly one of Run, Modules, Conda, Venv, Env, and
// Source is set.
type SetupStep struct {
	Run     Script                 `toml:"run" help:"Shell code: complete lines of bash."`
	Modules []Word                 `toml:"modules" help:"Environment modules to load, in order."`
	Conda   Expandable             `toml:"conda" help:"Name or path of a conda environment to activate."`
	Venv    Expandable             `toml:"venv" help:"Python virtual environment to activate."`
	Env     map[EnvName]Expandable `toml:"env" help:"Environment variables to set."`
	Source  Expandable             `toml:"source" help:"File that bash reads."`
	Where   Where                  `toml:"where" enum:"outside,inside" help:"Place of the step."`
	MayFail bool                   `toml:"may_fail" help:"Continue if the step fails."`
}

// A Where is the place where a step of [setup] runs.
type Where string

// Values of Where. The zero value is WhereOutside.
const (
	WhereOutside Where = "outside" // once, in the batch script on the first node
	WhereInside  Where = "inside"  // in every rank, inside of its container
)

// A Script is bash code: one or more complete lines.
type Script string

// UnmarshalTOML accepts a TOML string with complete commands. An incomplete command, such as
// an open quote, would swallow the next lines of the script.
func (s *Script) UnmarshalTOML(v any) error {
	text, err := stringValue(v)
	if err != nil {
		return err
	}
	text = strings.TrimRight(text, "\n")
	if strings.TrimSpace(text) == "" {
		return valueErrorf("", "is empty")
	}
	for line := range strings.SplitSeq(text, "\n") {
		if err := checkControl(strings.ReplaceAll(line, "\t", " ")); err != nil {
			return err
		}
	}
	if _, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), ""); err != nil {
		return valueErrorf("write each command, loop, and condition completely in one step", "is not a complete bash command: %s", strings.TrimPrefix(err.Error(), ":"))
	}
	if strings.HasSuffix(text, `\`) {
		return valueErrorf("", "ends with a backslash, which would join it with the next line")
	}
	*s = Script(text)
	return nil
}

// An Expandable is a text with variables: $NAME, ${NAME}, ${NAME:-default}, ${NAME:+text}, and
// a leading ~/ for the home directory. $$ is a dollar sign. Expansion runs no commands.
type Expandable string

const expandableForms = "allowed: $NAME, ${NAME}, ${NAME:-default}, ${NAME:+text}, and $$ for a dollar sign; no ' inside of braces"

// UnmarshalTOML accepts a TOML string.
func (e *Expandable) UnmarshalTOML(v any) error {
	s, err := stringValue(v)
	if err != nil {
		return err
	}
	if err := checkControl(s); err != nil {
		return err
	}
	if _, ok := parseExpansion(s); !ok {
		// The value may be secret, so the message does not contain it.
		return valueErrorf(expandableForms, "has a dollar sign that does not start a variable")
	}
	*e = Expandable(s)
	return nil
}

// An expansionPart is literal text, or a variable.
type expansionPart struct {
	text     string // literal text, if name is empty
	name     string
	operator string          // "", ":-", ":+", "-", or "+"
	word     []expansionPart // operand of the operator
}

var expansionName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*`)

// parseExpansion splits a text at its variables. ok is false if a dollar sign does not start a
// variable, or if the text cannot be a word of bash.
func parseExpansion(s string) (parts []expansionPart, ok bool) {
	if s == "~" || strings.HasPrefix(s, "~/") {
		parts, s = append(parts, expansionPart{name: "HOME"}), s[1:]
	}
	parts, rest, ok := parseExpansionUntil(parts, s, false)
	return parts, ok && rest == ""
}

// parseExpansionUntil parses up to the end, or up to a closing brace.
func parseExpansionUntil(parts []expansionPart, s string, inBraces bool) (all []expansionPart, rest string, ok bool) {
	literal := ""
	flush := func() {
		if literal != "" {
			parts, literal = append(parts, expansionPart{text: literal}), ""
		}
	}
	for s != "" {
		switch {
		case inBraces && s[0] == '\'':
			return nil, "", false // bash searches for the other quote, also beyond the brace
		case inBraces && s[0] == '}':
			flush()
			return parts, s, true
		case s[0] != '$':
			literal, s = literal+s[:1], s[1:]
		case strings.HasPrefix(s, "$$"):
			literal, s = literal+"$", s[2:]
		case strings.HasPrefix(s, "${"):
			flush()
			name := expansionName().FindString(s[2:])
			if name == "" {
				return nil, "", false
			}
			part := expansionPart{name: name}
			s = s[2+len(name):]
			for _, operator := range []string{":-", ":+", "-", "+"} {
				if strings.HasPrefix(s, operator) {
					part.operator = operator
					if part.word, s, ok = parseExpansionUntil(nil, s[len(operator):], true); !ok {
						return nil, "", false
					}
					break
				}
			}
			if !strings.HasPrefix(s, "}") {
				return nil, "", false
			}
			parts, s = append(parts, part), s[1:]
		default:
			flush()
			name := expansionName().FindString(s[1:])
			if name == "" {
				return nil, "", false
			}
			parts, s = append(parts, expansionPart{name: name}), s[1+len(name):]
		}
	}
	flush()
	return parts, "", !inBraces
}

// shellWord returns the text as one word of bash, with its variables in double quotes.
func (e Expandable) shellWord() string {
	parts, ok := parseExpansion(string(e))
	if !ok {
		return ShellQuote(string(e))
	}
	if len(parts) == 0 || len(parts) == 1 && parts[0].name == "" {
		return ShellQuote(literalText(parts))
	}
	return `"` + doubleQuoted(parts) + `"`
}

func literalText(parts []expansionPart) string {
	text := ""
	for _, p := range parts {
		text += p.text
	}
	return text
}

var doubleQuoteEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", `$`, `\$`)

func doubleQuoted(parts []expansionPart) string {
	var b strings.Builder
	for _, p := range parts {
		switch {
		case p.name == "":
			// In ${NAME:-word}, the text has no closing brace, because parseExpansion ends the
			// word there.
			b.WriteString(doubleQuoteEscaper.Replace(p.text))
		default:
			b.WriteString("${" + p.name + p.operator)
			b.WriteString(doubleQuoted(p.word))
			b.WriteString("}")
		}
	}
	return b.String()
}

// Expand returns the text with the values of its variables. A variable that is not set is
// empty, as in a batch script.
func (e Expandable) Expand(lookup func(name string) (string, bool)) string {
	parts, _ := parseExpansion(string(e))
	return expandParts(parts, lookup)
}

func expandParts(parts []expansionPart, lookup func(name string) (string, bool)) string {
	var b strings.Builder
	for _, p := range parts {
		if p.name == "" {
			b.WriteString(p.text)
			continue
		}
		value, set := lookup(p.name)
		if strings.HasPrefix(p.operator, ":") {
			set = value != ""
		}
		switch {
		case strings.HasSuffix(p.operator, "-") && !set, strings.HasSuffix(p.operator, "+") && set:
			b.WriteString(expandParts(p.word, lookup))
		case !strings.HasSuffix(p.operator, "+"):
			b.WriteString(value)
		}
	}
	return b.String()
}

// resolve makes a path absolute if it does not start with a variable.
func (e *Expandable) resolve(baseDir string) {
	if s := string(*e); s != "" && !strings.HasPrefix(s, "$") && !strings.HasPrefix(s, "~") && !filepath.IsAbs(s) {
		*e = Expandable(strings.ReplaceAll(baseDir, "$", "$$")) + Expandable("/"+strings.TrimPrefix(s, "./"))
	}
}

// kinds returns the keys of a step that are set and determine what it does.
func (s *SetupStep) kinds() (keys []string) {
	for _, k := range []struct {
		name string
		set  bool
	}{
		{"run", s.Run != ""}, {"modules", s.Modules != nil}, {"conda", s.Conda != ""}, {"venv", s.Venv != ""}, {"env", s.Env != nil}, {"source", s.Source != ""},
	} {
		if k.set {
			keys = append(keys, k.name)
		}
	}
	return keys
}

// IsInside reports whether the step runs in every rank.
func (s *SetupStep) IsInside() bool { return s.Where == WhereInside }

// moduleCommand matches shell code that may load modules.
var moduleCommand = lazyregexp.New(`\b(module|ml)\b`)

// UsesModules reports whether a step needs the shell function module.
func (s *SetupStep) UsesModules() bool {
	return len(s.Modules) > 0 || moduleCommand().MatchString(string(s.Run))
}

func (d *decoder) checkSteps(s *Setup, j *Job) {
	const steps = "setup.steps"
	if !d.isValid(steps) {
		return
	}
	for _, key := range []string{"setup.lines", "setup.modules", "setup.conda", "setup.venv"} {
		if d.given[key] {
			d.report(key, "add it to setup.steps, at its place in the order", "conflicts with setup.steps")
		}
	}
	for i := range s.Steps {
		step := &s.Steps[i]
		switch kinds := step.kinds(); {
		case isAnyWithin(d.invalid, fmt.Sprintf("%s[%d]", steps, i)):
		case len(kinds) == 0:
			d.reportElementAllowed(steps, i, "does nothing", "set one of run, modules, conda, venv, env, source")
		case len(kinds) > 1:
			d.reportElementAllowed(steps, i, "has several actions: "+strings.Join(kinds, ", "), "write one step for each, in their order")
		case step.IsInside() && j.Train != nil:
			d.reportElementAllowed(steps, i, `where = "inside" is not valid with [train]`, "remove where: ranks of the built-in trainer have no setup of their own")
		}
		for key, text := range map[string]Expandable{"conda": step.Conda, "venv": step.Venv, "source": step.Source} {
			if strings.HasPrefix(string(text), "-") {
				d.reportElement(steps, i, fmt.Sprintf("%s: %q starts with \"-\" and would be read as an option", key, text))
			}
		}
	}
}

// SetupScript returns the bash code of the steps that run at a place, or an empty string
// without such steps. If a step without may_fail fails, the code prints the number of the step
// with its exit code, and exits with this code.
func (s *Setup) SetupScript(where Where) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	unknown := true // whether the option -e may be off
	for i := range s.Steps {
		step := &s.Steps[i]
		if step.IsInside() != (where == WhereInside) {
			continue
		}
		if b.Len() == 0 {
			line(`trap 'ddpbatch_status=$?; [ "$ddpbatch_status" = 0 ] || printf "ddpbatch: error: setup.steps[%%s] failed with exit code %%s: %%s\n" "$ddpbatch_step" "$ddpbatch_status" "$ddpbatch_action" >&2' EXIT`)
		}
		line("ddpbatch_step=%d ddpbatch_action=%s", i, ShellQuote(step.action()))
		switch {
		case step.MayFail:
			line("set +e")
		case unknown:
			line("set -e")
		}
		step.write(line)
		unknown = step.MayFail || step.Run != "" || step.Source != "" // may change the option
	}
	if b.Len() > 0 {
		if unknown {
			line("set -e")
		}
		line("trap - EXIT")
		line("unset ddpbatch_step ddpbatch_action")
	}
	return b.String()
}

// maxAction is the maximum length of an action in an error.
const maxAction = 100

// action describes the step for an error. It contains no values of variables.
func (s *SetupStep) action() string {
	text := ""
	switch {
	case s.Run != "":
		text, _, _ = strings.Cut(strings.TrimSpace(string(s.Run)), "\n")
	case len(s.Modules) > 0:
		text = "module load " + strings.Join(Strings(s.Modules), " ")
	case s.Conda != "":
		text = "conda activate " + string(s.Conda)
	case s.Venv != "":
		text = "activate " + string(s.Venv)
	case s.Source != "":
		text = "source " + string(s.Source)
	default:
		text = "set " + strings.Join(s.envNames(), ", ")
	}
	if runes := []rune(text); len(runes) > maxAction {
		text = string(runes[:maxAction]) + "..."
	}
	return strings.ReplaceAll(text, "\t", " ")
}

func (s *SetupStep) envNames() (names []string) {
	for name := range s.Env {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

// write writes the commands of the step.
func (s *SetupStep) write(line func(format string, args ...any)) {
	switch {
	case s.Run != "":
		line("%s", s.Run)
	case s.Conda != "":
		line(`ddpbatch_hook="$(conda shell.bash hook)"`)
		line(`eval "$ddpbatch_hook"`)
		line("conda activate %s", s.Conda.shellWord())
	case s.Venv != "":
		line(". %s/bin/activate", s.Venv.shellWord())
	case s.Source != "":
		source := s.Source
		if !strings.ContainsAny(string(source), "/$~") {
			source = "./" + source // bash would look it up in PATH
		}
		line("source %s", source.shellWord())
	}
	for _, m := range s.Modules {
		line("module load %s", ShellQuote(string(m)))
	}
	for _, name := range s.envNames() {
		line("export %s=%s", name, s.Env[EnvName(name)].shellWord())
	}
}

// ApplySteps returns an environment with the variables and virtual environments of the steps
// that run outside of ranks. It does the same as their part of the batch script, for ranks
// that start without one. applied is false if there are other steps.
func (s *Setup) ApplySteps(env []string) (out []string, applied bool) {
	applied = true
	out = slices.Clone(env)
	lookup := func(name string) (string, bool) { return environ.Lookup(out, name) }
	set := func(name, value string) {
		out = append(slices.DeleteFunc(out, func(kv string) bool { return strings.HasPrefix(kv, name+"=") }), name+"="+value)
	}
	for i := range s.Steps {
		step := &s.Steps[i]
		switch {
		case step.IsInside():
		case step.Env != nil:
			for _, name := range step.envNames() {
				set(name, step.Env[EnvName(name)].Expand(lookup))
			}
		case step.Venv != "":
			dir := step.Venv.Expand(lookup)
			path, _ := lookup("PATH")
			set("VIRTUAL_ENV", dir)
			set("PATH", environ.PrependPath(filepath.Join(dir, "bin"), path))
			out = slices.DeleteFunc(out, func(kv string) bool { return strings.HasPrefix(kv, "PYTHONHOME=") })
		default:
			applied = false
		}
	}
	return out, applied
}
