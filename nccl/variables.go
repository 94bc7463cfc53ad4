package nccl

import (
	"fmt"
	"slices"
	"strings"
)

// A Source is the origin of a variable. Earlier sources in this list take precedence.
type Source string

// Sources of variables, in order of precedence.
const (
	User    Source = "user"      // environment of the rank: the user, a module, the job file
	Site    Source = "site"      // site profile
	Conf    Source = "nccl.conf" // a file that NCCL reads
	Planned Source = "ddpbatch"  // this package
)

// A Var is an environment variable of a rank.
type Var struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source Source `json:"source"`
	From   string `json:"from"`   // location for the source, such as "/etc/nccl.conf:2"; empty for Planned
	Reason string `json:"reason"` // why the value is right or wrong, one line
	Wrong  bool   `json:"wrong"`  // a value of another source contradicts the chosen network
}

// An Env is the environment that makes a rank's libraries use the chosen network.
type Env struct {
	// Vars are the variables to set, and the variables of other sources that this package
	// would otherwise set.
	Vars []Var `json:"vars"`
	// Warnings require an action by the user. Notes are for information. Each is one sentence.
	Warnings []string `json:"warnings"`
	Notes    []string `json:"notes"`

	inherited map[string]bool // names that the environment already contains
}

// ToSet returns the variables that the caller must add to the environment: this package's
// variables, and the site profile's variables that the environment lacks. NCCL reads its own
// files itself.
func (e Env) ToSet() []Var {
	return slices.DeleteFunc(slices.Clone(e.Vars), func(v Var) bool {
		return v.Source == User || v.Source == Conf || v.Source == Site && e.inherited[v.Name]
	})
}

// A Profile holds the variables of a site profile.
type Profile struct {
	Name string // for messages: "alps"
	Vars map[string]string
}

func (e *Env) warn(format string, args ...any) {
	e.Warnings = append(e.Warnings, fmt.Sprintf(format, args...))
}

func (e *Env) note(format string, args ...any) {
	e.Notes = append(e.Notes, fmt.Sprintf(format, args...))
}

// An assessment is the assessment of a value from another source.
type assessment struct {
	text    string
	isWrong bool // see [Var.Wrong]
}

func accept(format string, args ...any) assessment {
	return assessment{fmt.Sprintf(format, args...), false}
}
func reject(format string, args ...any) assessment {
	return assessment{fmt.Sprintf(format, args...), true}
}

// existing returns the existing value of a variable. NCCL reads its own files, but the
// environment takes precedence. The other libraries read only the environment.
func (p *planner) existing(name string) (Var, bool) {
	site, fromSite := p.Site.Vars[name]
	from := fmt.Sprintf("the profile of site %s", p.Site.Name)
	if value, set := p.Lookup(name); set {
		p.env.inherited[name] = true
		if fromSite && value == site {
			return Var{Name: name, Value: value, Source: Site, From: from}, true
		}
		return Var{Name: name, Value: value, Source: User, From: "the environment"}, true
	}
	if fromSite {
		return Var{Name: name, Value: site, Source: Site, From: from}, true
	}
	if strings.HasPrefix(name, "NCCL_") {
		if i := slices.IndexFunc(p.Conf, func(s Setting) bool { return s.Name == name }); i >= 0 {
			return Var{Name: name, Value: p.Conf[i].Value, Source: Conf, From: p.Conf[i].From()}, true
		}
	}
	return Var{}, false
}

// existingValue returns the given value of a variable, or "".
func (p *planner) existingValue(name string) string {
	if v, set := p.existing(name); set {
		return v.Value
	}
	return ""
}

// addExisting lists a variable of another source, with the assessment of its value.
func (p *planner) addExisting(v Var, result assessment) {
	v.Reason, v.Wrong = "unchanged: "+result.text, result.isWrong
	p.env.Vars = append(p.env.Vars, v)
	if v.Wrong {
		p.env.warn("%s=%q (from %s) is unchanged, but %s", v.Name, v.Value, v.From, result.text)
	}
}

// keepExisting lists a variable if another source has set it, and reports whether it did.
func (p *planner) keepExisting(name string, assess func(value string) assessment) bool {
	v, set := p.existing(name)
	if set {
		p.addExisting(v, assess(v.Value))
	}
	return set
}

// add adds a variable of this package.
func (p *planner) add(name, value, format string, args ...any) {
	p.env.Vars = append(p.env.Vars, Var{Name: name, Value: value, Source: Planned, Reason: fmt.Sprintf(format, args...)})
}
