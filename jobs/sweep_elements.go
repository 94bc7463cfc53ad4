package jobs

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
)

// maxElements bounds a sweep. Slurm's own limit, MaxArraySize, is 1001 unless the
// cluster says otherwise.
const maxElements = 10_000

// A variant is what one element sets otherwise, each with its place in the file.
type variant []variation

type variation struct {
	value
	where span
}

// decodeSweep decodes a document with [sweep]: every element is decoded as a job
// file of its own. The Job itself is the first element under the sweep's name.
func decodeSweep(l *layout, doc map[string]any) (*Job, error) {
	sweep := &Sweep{}
	d := newDecoder(l, &Job{})
	d.given["sweep"] = true
	d.value([]string{"sweep"}, "sweep", l.lookup("sweep").value, doc["sweep"], reflect.ValueOf(sweep).Elem())
	d.checkSweep(sweep)
	if len(d.found) > 0 {
		return nil, d.diagnostics()
	}
	base := maps.Clone(doc)
	delete(base, "sweep")
	var found Diagnostics
	for i, v := range l.variants(sweep) {
		job, err := l.element(base, v, i)
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

func (d *decoder) checkSweep(s *Sweep) {
	kinds := 0
	for _, key := range []string{"sweep.grid", "sweep.list", "sweep.random"} {
		if d.given[key] {
			kinds++
		}
	}
	if kinds != 1 && len(d.found) == 0 {
		d.report("sweep", "", "needs exactly one of grid, list and random, and has %d", kinds)
	}
	if r := s.Random; r != nil {
		d.require("sweep.random.samples")
		d.require("sweep.random.values")
	}
	for _, a := range s.Grid {
		if a.values == nil {
			d.report("sweep.grid", "", "%s is a range, which a grid cannot walk", a.Key())
		}
	}
	n := len(s.List)
	if d.usable("sweep.list") && n == 0 {
		d.report("sweep.list", "", "is empty")
	}
	if s.Random != nil {
		n = int(s.Random.Samples)
	}
	if len(s.Grid) > 0 {
		n = 1
		for _, a := range s.Grid {
			n = min(n*max(1, len(a.values)), maxElements+1)
		}
	}
	if n > maxElements {
		d.report("sweep", "", "makes more than %d jobs", maxElements)
	}
}

// variants are the elements' values, in order.
func (l *layout) variants(s *Sweep) []variant {
	switch {
	case s.Random != nil:
		return l.drawn(s.Random)
	case len(s.List) > 0:
		all := make([]variant, len(s.List))
		for i, values := range s.List {
			for _, v := range values {
				at := l.lookup(fmt.Sprintf("sweep.list[%d].%s", i, keyName(v.path)))
				all[i] = append(all[i], variation{v, at.value})
			}
		}
		return all
	}
	// As in the file, so that the last axis varies fastest.
	axes := slices.Clone(s.Grid)
	slices.SortStableFunc(axes, func(a, b Axis) int {
		return l.lookup("sweep.grid."+a.Key()).key.start - l.lookup("sweep.grid."+b.Key()).key.start
	})
	all := []variant{nil}
	for _, a := range axes {
		places := l.lookup("sweep.grid." + a.Key()).elements
		var longer []variant
		for _, v := range all {
			for i, x := range a.values {
				at := span{}
				if i < len(places) {
					at = places[i]
				}
				longer = append(longer, append(slices.Clone(v), variation{value{a.path, x}, at}))
			}
		}
		all = longer
	}
	return all
}

func (l *layout) drawn(r *Random) []variant {
	random := rand.New(rand.NewPCG(uint64(r.Seed), 0))
	all := make([]variant, r.Samples)
	for i := range all {
		for _, a := range r.Values {
			all[i] = append(all[i], variation{value{a.path, a.draw(random)}, l.lookup("sweep.random.values." + a.Key()).value})
		}
	}
	return all
}

// draw takes one value at random. Numbers get six significant digits: people read
// them, and copy them.
func (a Axis) draw(random *rand.Rand) any {
	if a.values != nil {
		return a.values[random.IntN(len(a.values))]
	}
	x := random.Float64()
	low, high := a.min, a.max
	if a.whole {
		high++ // the last one, too
	}
	if a.log {
		x = math.Exp(math.Log(low) + x*(math.Log(high)-math.Log(low)))
	} else {
		x = low + x*(high-low)
	}
	if a.whole {
		return int64(min(math.Floor(x), a.max))
	}
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 6, 64), 64)
	return min(max(x, a.min), a.max)
}

// element decodes one element: the document with the values of v in it. Mistakes
// in them point to where [sweep] gives them.
func (l *layout) element(base map[string]any, v variant, index int) (*Job, error) {
	doc := clone(base).(map[string]any)
	inner := *l
	inner.edited = true
	inner.sites = maps.Clone(l.sites)
	inner.over = maps.Clone(l.over)
	for _, x := range v {
		key := keyName(x.path)
		if err := assign(doc, x.path, x.value.value); err != nil {
			d := l.place(x.where)
			d.Key, d.Message = key, err.Error()
			return nil, Diagnostics{d}
		}
		inner.sites[key] = &site{key: x.where, value: x.where, explicit: true}
		delete(inner.over, key)
	}
	if name, ok := doc["name"].(string); ok {
		doc["name"] = fmt.Sprintf("%s-%d", name, index)
	}
	return decodeJob(&inner, doc)
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
