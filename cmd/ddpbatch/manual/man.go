package manual

import (
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// Man returns the manual pages: one for the program, one for each command, and
// ddpbatch.toml(5) for the job file. The pages use the macros of man(7).
func Man(p Program, keys []jobs.Key, r Release) []Page {
	pages := []Page{{p.Name + ".1", programMan(p, r)}}
	for _, c := range p.Commands {
		pages = append(pages, Page{pageOf(p, c) + ".1", commandMan(p, c, r)})
	}
	return append(pages, Page{p.Name + ".toml.5", keysMan(p, keys, r)})
}

// A Release is the version and the date ("2026-01-31") in the footer of a manual page.
type Release struct{ Version, Day string }

func pageOf(p Program, c Command) string { return p.Name + "-" + strings.Join(c.Path, "-") }

// roff builds a manual page.
type roff struct{ strings.Builder }

func newRoff(p Program, title string, section int, release Release) *roff {
	r := &roff{}
	volume := map[int]string{1: "User Commands", 5: "File Formats"}[section]
	fmt.Fprintf(r, ".TH %s %d %s %s %s\n", quoteRoff(title), section, release.Day, quoteRoff(p.Name+" "+release.Version), quoteRoff(volume))
	return r
}

func (r *roff) section(name string) { fmt.Fprintf(r, ".SH %s\n", strings.ToUpper(name)) }

// name writes the NAME section, which whatis(1) searches.
func (r *roff) name(page, summary string) {
	r.section("name")
	fmt.Fprintf(r, "%s \\- %s\n", roffText(page), roffText(lowerFirst(strings.TrimSuffix(summary, "."))))
}

func (r *roff) item(term, text string) {
	fmt.Fprintf(r, ".TP\n.B %s\n%s\n", roffText(term), roffLine(text))
}

// text writes paragraphs. It preserves lines that are indented by four spaces.
func (r *roff) text(s string) {
	literal, blank := false, false
	set := func(on bool) {
		if on && !literal {
			r.WriteString(".RS 4\n.nf\n")
		} else if !on && literal {
			r.WriteString(".fi\n.RE\n")
		}
		literal = on
	}
	for line := range strings.SplitSeq(strings.TrimSpace(s), "\n") {
		if line == "" {
			blank = true
			continue
		}
		indented := strings.HasPrefix(line, "    ")
		if blank && !(indented && literal) {
			set(false)
			r.WriteString(".PP\n")
		} else if blank {
			r.WriteString(".sp\n")
		}
		set(indented)
		blank = false
		r.WriteString(roffLine(strings.TrimPrefix(line, "    ")) + "\n")
	}
	set(false)
}

func (r *roff) exits(p Program) {
	r.section("exit status")
	for _, e := range p.Exits {
		r.item(fmt.Sprint(e.Code), e.Meaning)
	}
}

func programMan(p Program, release Release) []byte {
	r := newRoff(p, p.Name, 1, release)
	r.name(p.Name, p.Summary)
	r.section("synopsis")
	fmt.Fprintf(r, ".B %s\n.I command\n.RI [ flags ]\n", p.Name)
	r.section("description")
	r.text(p.Detail)
	r.section("commands")
	for _, c := range p.Commands {
		if !c.Group {
			r.item(c.Name(), c.Summary)
		}
	}
	r.exits(p)
	r.section("environment")
	for _, g := range Variables {
		for _, v := range g.Variables {
			if g.Own {
				r.item(v.Name, v.Meaning)
			}
		}
	}
	r.section("see also")
	var pages []string
	for _, c := range p.Commands {
		pages = append(pages, ".BR "+roffText(pageOf(p, c))+" (1)")
	}
	pages = append(pages, fmt.Sprintf(".BR %s.toml (5)", p.Name), ".BR sbatch (1)", ".BR srun (1)")
	r.WriteString(strings.Join(pages, ",\n") + "\n")
	return []byte(r.String())
}

func commandMan(p Program, c Command, release Release) []byte {
	page := pageOf(p, c)
	r := newRoff(p, page, 1, release)
	r.name(page, c.Summary)
	r.section("synopsis")
	fmt.Fprintf(r, ".B %s\n", roffText(p.Name+" "+c.Usage))
	r.section("description")
	r.text(c.Summary)
	if c.Detail != "" {
		r.WriteString(".PP\n")
		r.text(c.Detail)
	}
	if len(c.Arguments)+len(c.Flags) > 0 {
		r.section("options")
	}
	for _, a := range c.Arguments {
		r.item(a.Name, a.Help)
	}
	for _, f := range c.Flags {
		r.item(f.spelled(), f.Help)
	}
	if c.Group {
		r.section("commands")
		for _, below := range p.below(c.Path) {
			r.item(below.Name(), below.Summary)
		}
	}
	r.section("see also")
	fmt.Fprintf(r, ".BR %s (1),\n.BR %s.toml (5)\n", p.Name, p.Name)
	return []byte(r.String())
}

func keysMan(p Program, keys []jobs.Key, release Release) []byte {
	page := p.Name + ".toml"
	r := newRoff(p, page, 5, release)
	r.name(page, "job file of "+p.Name)
	r.section("description")
	r.text("A job file describes a job in TOML. \"" + p.Name + " init\" writes one to start from. \"" + p.Name + " check\" reports every error, including unknown keys, with its line and column.\n\nA required key is required only if the file contains its table, or the kind of model or data that the key belongs to.")
	r.section("top level")
	for _, k := range byTable(keys) {
		if k.Table {
			r.section("[" + k.Name + "]")
			r.text(k.Help)
			continue
		}
		text := k.Help + " Type: " + k.Type
		switch k.Default {
		case "":
		case "required":
			text += "; required"
		default:
			text += "; default " + k.Default
		}
		r.item(k.Name[strings.LastIndexByte(k.Name, '.')+1:], text)
	}
	r.section("see also")
	fmt.Fprintf(r, ".BR %s (1),\n.BR %s\\-check (1),\n.BR %s\\-init (1)\n", p.Name, p.Name, p.Name)
	return []byte(r.String())
}

// roffText escapes the special characters of roff.
func roffText(s string) string {
	return strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`).Replace(s)
}

// roffLine escapes a line of text that could look like a roff request.
func roffLine(s string) string {
	s = roffText(strings.TrimRight(s, " "))
	if strings.HasPrefix(s, ".") {
		return `\&` + s
	}
	return s
}

func quoteRoff(s string) string { return `"` + strings.ReplaceAll(roffText(s), `"`, `\(dq`) + `"` }

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }
