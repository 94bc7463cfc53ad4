package jobs

import (
	"fmt"
	"reflect"
	"slices"
)

// checkSweep reports conflicts between the keys of [sweep]. It returns whether the sweep
// is of exactly one kind, so that it has trials.
func (d *decoder) checkSweep(s *Sweep) (hasTrials bool) {
	if d.invalid["sweep"] {
		return false
	}
	kinds, meant := 0, false
	for _, key := range []string{"sweep.array", "sweep.grid", "sweep.list", "sweep.random"} {
		if d.given[key] {
			kinds++
		}
		meant = meant || d.guessed[key]
		hasTrials = hasTrials || d.given[key] && !d.invalid[key]
	}
	if kinds > 1 || kinds == 0 && !meant {
		d.report("sweep", "", "needs exactly one of array, grid, list, and random, not %d", kinds)
	}
	d.checkTable("sweep", reflect.ValueOf(s))
	if kinds == 1 {
		d.expandArray(s)
	}
	s.Grid = slices.DeleteFunc(s.Grid, func(a Axis) bool {
		if a.values == nil {
			d.report(a.at, "", "is a range, but a grid needs a list of values")
			d.expected = append(d.expected, a.Key())
		}
		return a.values == nil
	})
	for _, a := range s.Grid {
		d.checkRepeats(a)
	}
	if d.isValid("sweep.list") && len(s.List) == 0 {
		d.report("sweep.list", "", "is empty")
	}
	for key, n := range map[string]int{"sweep.grid": s.combinations(), "sweep.list": len(s.List), "sweep.random": s.samples()} {
		if n > maxTrials {
			if d.given["sweep.array"] {
				key = "sweep.array"
			}
			if d.given["sweep.random.samples"] && key == "sweep.random" {
				key = "sweep.random.samples"
			}
			d.report(key, "", "results in more than %d trials", maxTrials)
		}
	}
	return hasTrials && kinds == 1
}

// checkRepeats reports duplicate values in a list, because they would run the same job twice.
func (d *decoder) checkRepeats(a Axis) {
	first := map[string]int{}
	for i, v := range a.values {
		same := fmt.Sprintf("%T %s", v, formatValue(v))
		if n, ok := v.(int64); ok && n == int64(float64(n)) {
			same = fmt.Sprintf("%T %s", 0.0, formatValue(float64(n))) // 1 equals 1.0
		}
		if j, ok := first[same]; ok {
			d.reportElement(a.at, i, fmt.Sprintf("is equal to element %d", j))
			continue
		}
		first[same] = i
	}
}

// combinations returns the number of trials in a grid, up to maxTrials+1.
func (s *Sweep) combinations() int {
	n := min(len(s.Grid), 1)
	for _, a := range s.Grid {
		n = min(n*len(a.values), maxTrials+1)
	}
	return n
}

func (s *Sweep) samples() int {
	if s.Random == nil {
		return 0
	}
	return s.Random.Samples
}

// shrink reduces an invalid sweep to the trials that are needed to find the errors in the rest
// of the file.
func (s *Sweep) shrink() {
	for i := range s.Grid {
		s.Grid[i].values = s.Grid[i].values[:1]
	}
	s.List = s.List[:min(len(s.List), maxTrials)]
	if s.Random != nil {
		s.Random.Samples = 1
	}
}
