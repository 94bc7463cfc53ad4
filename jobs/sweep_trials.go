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

	"github.com/ddpbatch/ddpbatch/internal/format"
)

// maxTrials is the maximum number of trials in a sweep. The default of Slurm's own limit,
// MaxArraySize, is 1001.
const maxTrials = 10_000

// maxSweepSize limits the product of the number of trials and [layout.size]. Each trial stores
// all keys, which takes about 300 bytes per key. A file of 1 MiB can have 100,000 keys.
const maxSweepSize = 2_000_000

// maxSweepText limits the product of the number of trials and the size of the job file in bytes. Each
// trial becomes a job file.
const maxSweepText = 1 << 30

// decodeSweep decodes a document with [sweep]. Each trial is the document without [sweep], with
// overrides from it. The Job itself is the first trial with the name of the sweep.
func decodeSweep(l *layout, doc map[string]any) (*Job, error) {
	sweep := &Sweep{}
	d := newDecoder(l, &Job{})
	d.given["sweep"] = true
	d.value([]string{"sweep"}, "sweep", l.lookup("sweep").value, doc["sweep"], reflect.ValueOf(sweep).Elem(), rules{})
	hasTrials := d.checkSweep(sweep)
	if slurm, ok := doc["slurm"].(map[string]any); ok && slurm["group"] != nil {
		d.addValueError([]string{"sweep"}, "sweep", l.lookup("sweep").header, valueErrorf("submit the trials one by one with --set",
			"is not valid with [[slurm.group]]: Slurm has no arrays of heterogeneous jobs"))
	}
	found := d.diagnostics()
	if len(found) > 0 {
		if !hasTrials || len(found) >= MaxDiagnostics {
			return nil, found
		}
		sweep.shrink()
	}
	base := l.withoutSweep(doc)
	n := max(sweep.combinations(), len(sweep.List), sweep.samples())
	if size := base.size() + sweep.size(); size*n > maxSweepSize {
		d.addValueError([]string{"sweep"}, "sweep", l.lookup("sweep").value, valueErrorf("",
			"%d trials of a job file with %d keys and elements of lists need too much memory", n, size))
		return nil, d.diagnostics()
	}
	if len(l.src)*n > maxSweepText {
		d.addValueError([]string{"sweep"}, "sweep", l.lookup("sweep").value, valueErrorf("put long texts into files",
			"%d trials of a job file of %s need more than 1 GiB", n, format.Bytes(len(l.src))))
		return nil, d.diagnostics()
	}
	for i, overrides := range l.trials(sweep) {
		job, err := base.trial(i, overrides, d.expected)
		if inTrial, ok := err.(Diagnostics); ok {
			for _, diagnostic := range inTrial {
				// An error outside [sweep] occurs in every trial.
				if len(found) < MaxDiagnostics && !slices.Contains(found, diagnostic) {
					found = append(found, diagnostic)
				}
			}
			continue
		}
		trial := Trial{Index: i, Job: job}
		for _, o := range overrides {
			trial.Values = append(trial.Values, Setting{o.Key(), o.value})
		}
		sweep.Trials = append(sweep.Trials, trial)
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

// withoutSweep returns a layout of the document without [sweep], which can have many keys.
func (l *layout) withoutSweep(doc map[string]any) *layout {
	base := *l
	base.doc = maps.Clone(doc)
	delete(base.doc, "sweep")
	base.positions = map[string]*keyPos{}
	for name, pos := range l.positions {
		if !isWithin(name, "sweep") {
			base.positions[name] = pos
		}
	}
	return &base
}

// size returns the number of keys and of elements of lists.
func (l *layout) size() int {
	n := 0
	for _, pos := range l.positions {
		n += 1 + len(pos.elements)
	}
	return n
}

// size returns the maximum number of keys and of elements of lists that the axes of a sweep add to
// a trial. The trials of a list are not larger than the file.
func (s *Sweep) size() int {
	axes := s.Grid
	if s.Random != nil {
		axes = s.Random.Values
	}
	n := 0
	for _, a := range axes {
		most := 0
		for _, v := range a.values {
			list, _ := listOf(v)
			most = max(most, len(list))
		}
		n += 1 + most
	}
	return n
}

// trial decodes one trial of a sweep: the document of the layout with overrides. It does not
// report the expected keys as missing.
func (l *layout) trial(index int, overrides []Override, expected []string) (*Job, error) {
	trial, doc := *l, clone(l.doc).(map[string]any)
	trial.positions, trial.over = maps.Clone(l.positions), maps.Clone(l.over)
	if err := trial.override(doc, overrides); err != nil {
		return nil, err
	}
	if name, ok := doc["name"].(string); ok {
		doc["name"] = fmt.Sprintf("%s-%d", name, index)
	}
	return decodeJob(&trial, doc, expected...)
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

// trials returns the overrides of the trials, in order.
func (l *layout) trials(s *Sweep) [][]Override {
	switch {
	case s.Random != nil:
		return l.sampleTrials(s.Random)
	case len(s.List) > 0:
		all := make([][]Override, len(s.List))
		for i, values := range s.List {
			for _, v := range values {
				all[i] = append(all[i], l.sweptOverride(v.path, v.at, -1, v.value))
			}
		}
		return all
	}
	// Use file order, so that the last axis varies fastest.
	axes := slices.Clone(s.Grid)
	slices.SortStableFunc(axes, func(a, b Axis) int { return l.lookup(a.at).key.start - l.lookup(b.at).key.start })
	lists, n := make([][]Override, len(axes)), 1
	for i, a := range axes {
		lists[i] = l.axisOverrides(a)
		n *= len(lists[i])
	}
	all := make([][]Override, n)
	for t := range all {
		all[t] = make([]Override, len(axes))
		rest := t
		for i, overrides := range slices.Backward(lists) {
			all[t][i] = overrides[rest%len(overrides)]
			rest /= len(overrides)
		}
	}
	return all
}

// sampleTrials returns the overrides of a random search.
func (l *layout) sampleTrials(r *Random) [][]Override {
	random := rand.New(rand.NewPCG(r.Seed, 0))
	lists := make([][]Override, len(r.Values))
	for i, a := range r.Values {
		lists[i] = l.axisOverrides(a)
	}
	all := make([][]Override, r.Samples)
	for i := range all {
		for j, a := range r.Values {
			if lists[j] != nil {
				all[i] = append(all[i], lists[j][random.IntN(len(lists[j]))])
			} else {
				all[i] = append(all[i], l.sweptOverride(a.path, a.at, -1, a.sample(random.Float64())))
			}
		}
	}
	return all
}

// sample returns the value of a range at x, which is uniform in [0, 1). Floats have six
// significant digits, which are easy to read and copy.
func (a Axis) sample(x float64) any {
	low, high := a.min, a.max
	if a.whole {
		high++ // include max
	}
	if a.log {
		x = math.Exp(math.Log(low) + x*(math.Log(high)-math.Log(low)))
	} else {
		x = low + x*(high-low)
	}
	if a.whole {
		return asVariable(a.path, int64(min(math.Floor(x), a.max)))
	}
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 6, 64), 64)
	return asVariable(a.path, min(max(x, a.min), a.max))
}

// axisOverrides returns an override for each value of an axis, or nil for a range.
func (l *layout) axisOverrides(a Axis) (all []Override) {
	for i, v := range a.values {
		all = append(all, l.sweptOverride(a.path, a.at, i, v))
	}
	return all
}

// sweptOverride returns an override that sets the key path to v. The parameter at names the key in
// [sweep] that contains v. If index is not negative, v is the element of its list with this index.
// Errors in v refer to its position in [sweep].
func (l *layout) sweptOverride(path []string, at string, index int, v any) Override {
	o := Override{path: path, value: v, positions: map[string]*keyPos{}}
	o.from, _ = l.overrideSource(at)
	in := l.lookup(at)
	pos := keyPos{key: in.key, value: in.value, elements: in.elements}
	if index >= 0 {
		pos.elements = nil
		if index < len(in.elements) {
			pos.value = in.elements[index]
		}
		at = fmt.Sprintf("%s[%d]", at, index)
	}
	l.copyPositions(o.positions, o.Key(), at, v)
	o.positions[o.Key()] = &pos
	return o
}

// copyPositions copies the position of the value v of the key at, and the positions of the keys in
// v, to the map into. There, key replaces the prefix at.
func (l *layout) copyPositions(into map[string]*keyPos, key, at string, v any) {
	if pos, ok := l.positions[at]; ok {
		into[key] = pos
	}
	table, _ := v.(map[string]any)
	for name, inner := range table {
		name = keyName([]string{name})
		l.copyPositions(into, key+"."+name, at+"."+name, inner)
	}
}
