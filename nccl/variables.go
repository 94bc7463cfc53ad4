package nccl

import (
	"fmt"
	"slices"
	"strings"
)

// Source is who set a variable. Of several the first in this order counts.
type Source string

// The sources of variables.
const (
	User Source = "user"      // the environment of the rank: the user, a module, the job file
	Site Source = "site"      // the profile of the centre
	Conf Source = "nccl.conf" // a file that NCCL reads itself
	Ours Source = "ddpbatch"  // this package
)

// Var is one environment variable of a rank.
type Var struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source Source `json:"source"`
	From   string `json:"from"`   // where Source says so: "/etc/nccl.conf:2"; empty for Ours
	Reason string `json:"reason"` // why the value is right or wrong; one line
	Wrong  bool   `json:"wrong"`  // somebody else's value contradicts the network that was chosen
}

// Env is what a rank's environment has to hold for its libraries to use the
// network that was chosen.
type Env struct {
	// Vars are the variables that this package would set, and those that it
	// manages and that somebody else has set, who is named.
	Vars []Var `json:"vars"`
	// Warnings are what a person should do something about, and Notes what is
	// worth knowing, in one sentence each.
	Warnings []string `json:"warnings"`
	Notes    []string `json:"notes"`

	inherited map[string]bool // names that the environment has already
}

// ToSet are the variables that the caller puts into the environment: ours and
// those of the site's profile, which the environment does not have yet. A file
// of NCCL's is read by NCCL itself.
func (e Env) ToSet() []Var {
	return slices.DeleteFunc(slices.Clone(e.Vars), func(v Var) bool {
		return v.Source == User || v.Source == Conf || v.Source == Site && e.inherited[v.Name]
	})
}

// Profile is what a centre's profile says of variables.
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

// verdict judges the value that somebody else gave a variable.
type verdict struct {
	text  string
	wrong bool
}

func right(format string, args ...any) verdict { return verdict{fmt.Sprintf(format, args...), false} }
func wrong(format string, args ...any) verdict { return verdict{fmt.Sprintf(format, args...), true} }

// given finds what a variable is set to already. NCCL reads files of its own,
// but the environment goes first; the other libraries know only the environment.
func (p *planner) given(name string) (Var, bool) {
	site, ofSite := p.Site.Vars[name]
	from := fmt.Sprintf("the profile of site %s", p.Site.Name)
	if value, set := p.Lookup(name); set {
		p.env.inherited[name] = true
		if ofSite && value == site {
			return Var{Name: name, Value: value, Source: Site, From: from}, true
		}
		return Var{Name: name, Value: value, Source: User, From: "the environment"}, true
	}
	if ofSite {
		return Var{Name: name, Value: site, Source: Site, From: from}, true
	}
	if strings.HasPrefix(name, "NCCL_") {
		if i := slices.IndexFunc(p.Conf, func(s Setting) bool { return s.Name == name }); i >= 0 {
			return Var{Name: name, Value: p.Conf[i].Value, Source: Conf, From: p.Conf[i].From()}, true
		}
	}
	return Var{}, false
}

// value is what a variable will be: given, or ours; empty for none.
func (p *planner) value(name string) string {
	if v, set := p.given(name); set {
		return v.Value
	}
	return ""
}

// keep lists a variable that somebody else has set, with what it means here.
func (p *planner) keep(v Var, judged verdict) {
	v.Reason, v.Wrong = "kept: "+judged.text, judged.wrong
	p.env.Vars = append(p.env.Vars, v)
	if v.Wrong {
		p.env.warn("%s=%q (from %s) is kept; but %s", v.Name, v.Value, v.From, judged.text)
	}
}

// kept lists a variable if somebody else has set it.
func (p *planner) kept(name string, judge func(value string) verdict) bool {
	v, set := p.given(name)
	if set {
		p.keep(v, judge(v.Value))
	}
	return set
}

// set adds a variable of ours.
func (p *planner) set(name, value, format string, args ...any) {
	p.env.Vars = append(p.env.Vars, Var{Name: name, Value: value, Source: Ours, Reason: fmt.Sprintf(format, args...)})
}
