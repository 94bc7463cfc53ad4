package jobs

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
)

// maxTrials is the maximum number of trials in a sweep. The default of Slurm's own limit,
// MaxArraySize, is 1001.
const maxTrials = 10_000

// A variant is the set of values of one trial, each with its position in the file.
type variant []variation

type variation struct {
	value
	index int // index in the axis's list; -1 for the whole value of the key
}

// decodeSweep decodes a document with [sweep]. It decodes each trial as a separate job file.
// The Job itself is the first trial with the name of the sweep.
func decodeSweep(l *layout, doc map[string]any) (*Job, error) {
	sweep := &Sweep{}
	d := newDecoder(l, &Job{})
	d.given["sweep"] = true
	d.value([]string{"sweep"}, "sweep", l.lookup("sweep").value, doc["sweep"], reflect.ValueOf(sweep).Elem())
	readable := d.checkSweep(sweep)
	found := d.diagnostics()
	if len(found) > 0 {
		if !readable || len(found) >= maxDiagnostics {
			return nil, found
		}
		sweep.shrink()
	}
	base := maps.Clone(doc)
	delete(base, "sweep")
	// Each trial copies the positions of the keys. Omit the keys in [sweep], which can be many.
	sites := map[string]*keyPos{}
	for name, s := range l.positions {
		if !isWithin(name, "sweep") {
			sites[name] = s
		}
	}
	for i, v := range l.variants(sweep) {
		job, err := l.element(base, sites, v, i, d.unsure)
		if mistakes, ok := err.(Diagnostics); ok {
			for _, m := range mistakes {
				// An error outside the sweep occurs in every trial.
				if len(found) < maxDiagnostics && !slices.Contains(found, m) {
					found = append(found, m)
				}
			}
			continue
		}
		e := Trial{Index: i, Job: job}
		for _, x := range v {
			e.Values = append(e.Values, Setting{keyName(x.path), x.value.value})
		}
		sweep.Trials = append(sweep.Trials, e)
	}
	if len(found) > 0 {
		slices.SortStableFunc(found, func(a, b Diagnostic) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
		return nil, found
	}
	job := *sweep.Trials[0].Job
	l.doc = doc
	job.layout, job.Sweep = l, sweep
	job.Name = Name(doc["name"].(string)) // the longer name of the trial was a valid string
	return &job, nil
}

// variants returns the values of the trials, in order.
func (l *layout) variants(s *Sweep) []variant {
	switch {
	case s.Random != nil:
		return drawn(s.Random)
	case len(s.List) > 0:
		all := make([]variant, len(s.List))
		for i, values := range s.List {
			for _, v := range values {
				all[i] = append(all[i], variation{v, -1})
			}
		}
		return all
	}
	// Use file order, so that the last axis varies fastest.
	axes := slices.Clone(s.Grid)
	slices.SortStableFunc(axes, func(a, b Axis) int { return l.lookup(a.at).key.start - l.lookup(b.at).key.start })
	all := []variant{nil}
	for _, a := range axes {
		var longer []variant
		for _, v := range all {
			for i, x := range a.values {
				longer = append(longer, append(slices.Clone(v), variation{value{a.path, a.at, x}, i}))
			}
		}
		all = longer
	}
	return all
}

func drawn(r *Random) []variant {
	random := rand.New(rand.NewPCG(uint64(r.Seed), 0))
	all := make([]variant, r.Samples)
	for i := range all {
		for _, a := range r.Values {
			x, index := a.draw(random)
			all[i] = append(all[i], variation{value{a.path, a.at, x}, index})
		}
	}
	return all
}

// element decodes one trial: the document base with the values of v. Sites are the positions of
// the keys of base. Errors in the values of v point to their position in [sweep].
func (l *layout) element(base map[string]any, sites map[string]*keyPos, v variant, index int, meant []string) (*Job, error) {
	doc := clone(base).(map[string]any)
	inner := *l
	inner.edited = true
	inner.positions = maps.Clone(sites)
	inner.over = map[string]string{}
	maps.Copy(inner.over, l.over)
	for _, x := range v {
		inner.move(l, x)
		if err := assign(doc, x.path, x.value.value); err != nil {
			d := inner.at(keyName(x.path))
			d.Message = err.Error()
			return nil, Diagnostics{d}
		}
	}
	if name, ok := doc["name"].(string); ok {
		doc["name"] = fmt.Sprintf("%s-%d", name, index)
	}
	return decodeJob(&inner, doc, meant...)
}

// move sets the position of a key to its position in the sweep, according to layout l.
func (inner *layout) move(l *layout, x variation) {
	key, at := keyName(x.path), l.lookup(x.at)
	moved := keyPos{key: at.key, value: at.value, elements: at.elements, explicit: true}
	if x.index >= 0 {
		moved.elements = nil
		if x.index < len(at.elements) {
			moved.value = at.elements[x.index]
		}
	}
	if _, ok := x.value.value.(map[string]any); ok { // use the keys of the new table only
		from := fmt.Sprintf("%s[%d]", x.at, x.index)
		maps.DeleteFunc(inner.positions, func(name string, _ *keyPos) bool { return isWithin(name, key) })
		for name, s := range l.positions {
			if rest, ok := strings.CutPrefix(name, from+"."); ok {
				inner.positions[key+"."+rest] = s
			}
		}
	}
	inner.positions[key] = &moved
	inner.over[key], _ = l.overrideSource(x.at)
}

// clone returns a copy in which all tables are copied, so assigning a key leaves v unchanged.
func clone(v any) any {
	table, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := make(map[string]any, len(table))
	for key, inner := range table {
		out[key] = clone(inner)
	}
	return out
}
