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

// maxElements bounds a sweep. Slurm's own limit, MaxArraySize, is 1001 unless the
// cluster says otherwise.
const maxElements = 10_000

// A variant is what one element sets otherwise, each with its place in the file.
type variant []variation

type variation struct {
	value
	index int // of the axis's list, -1 for all that the key gives
}

// decodeSweep decodes a document with [sweep]: every element is decoded as a job
// file of its own. The Job itself is the first element under the sweep's name.
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
	// Each element copies the places of the keys. Those in [sweep] can be many.
	sites := map[string]*site{}
	for name, s := range l.sites {
		if !within(name, "sweep") {
			sites[name] = s
		}
	}
	for i, v := range l.variants(sweep) {
		job, err := l.element(base, sites, v, i, d.unsure)
		if mistakes, ok := err.(Diagnostics); ok {
			for _, m := range mistakes {
				// One mistake outside the sweep is in every element.
				if len(found) < maxDiagnostics && !slices.Contains(found, m) {
					found = append(found, m)
				}
			}
			continue
		}
		e := Element{Index: i, Job: job}
		for _, x := range v {
			e.Values = append(e.Values, Setting{keyName(x.path), x.value.value})
		}
		sweep.Elements = append(sweep.Elements, e)
	}
	if len(found) > 0 {
		slices.SortStableFunc(found, func(a, b Diagnostic) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
		return nil, found
	}
	job := *sweep.Elements[0].Job
	l.doc = doc
	job.layout, job.Sweep = l, sweep
	job.Name = Name(doc["name"].(string)) // that of an element is a string, and longer
	return &job, nil
}

// variants are the elements' values, in order.
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
	// As in the file, so that the last axis varies fastest.
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

// element decodes one element: the document base with the values of v in it. Sites are the
// places of the keys of base. Mistakes in the values point to where [sweep] gives them.
func (l *layout) element(base map[string]any, sites map[string]*site, v variant, index int, meant []string) (*Job, error) {
	doc := clone(base).(map[string]any)
	inner := *l
	inner.edited = true
	inner.sites = maps.Clone(sites)
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

// move puts a key where the sweep of the layout l gives it.
func (inner *layout) move(l *layout, x variation) {
	key, at := keyName(x.path), l.lookup(x.at)
	moved := site{key: at.key, value: at.value, elements: at.elements, explicit: true}
	if x.index >= 0 {
		moved.elements = nil
		if x.index < len(at.elements) {
			moved.value = at.elements[x.index]
		}
	}
	if _, ok := x.value.value.(map[string]any); ok { // its keys, and none of the table that it replaces
		from := fmt.Sprintf("%s[%d]", x.at, x.index)
		maps.DeleteFunc(inner.sites, func(name string, _ *site) bool { return within(name, key) })
		for name, s := range l.sites {
			if rest, ok := strings.CutPrefix(name, from+"."); ok {
				inner.sites[key+"."+rest] = s
			}
		}
	}
	inner.sites[key] = &moved
	inner.over[key], _ = l.overridden(x.at)
}

// clone copies tables, so that setting a key in the copy leaves the original.
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
