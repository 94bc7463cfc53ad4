package jobs

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
)

// An ArrayRange is a list of indices in the format of sbatch --array: "0-14%4", "0-20:5", or
// "1,3,7". The number after % limits how many trials run at the same time.
type ArrayRange string

const (
	arrayRangeForms   = `allowed: indices as in sbatch --array, such as "0-14%4", "0-20:5", or "1,3,7"`
	arrayRangePattern = `^[0-9]+(-[0-9]+(:[0-9]+)?)?(,[0-9]+(-[0-9]+(:[0-9]+)?)?)*(%[0-9]+)?$`
)

var arrayRangeForm = lazyregexp.New(arrayRangePattern)

// maxArrayIndices is the maximum number of indices in an [ArrayRange], in which an index can occur several
// times.
const maxArrayIndices = 10 * maxTrials

// arrayTaskKey is the key with the index of a trial.
const arrayTaskKey = "setup.array_task"

// UnmarshalTOML accepts a TOML string.
func (a *ArrayRange) UnmarshalTOML(v any) error {
	s, err := stringValue(v)
	if err != nil {
		return valueErrorf(arrayRangeForms, "%s", err)
	}
	if !arrayRangeForm().MatchString(s) {
		return valueErrorf(arrayRangeForms, "%q is not a list of indices", s)
	}
	if _, _, err := ArrayRange(s).Parse(); err != nil {
		return err
	}
	*a = ArrayRange(s)
	return nil
}

// Parse returns the distinct indices in ascending order, and the maximum number of trials at the same
// time, or 0. It stops after one more index than a sweep may have.
func (a ArrayRange) Parse() (indices []int, throttle int, err error) {
	list, limit, limited := strings.Cut(string(a), "%")
	number := func(s string) (int, error) {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			return 0, valueErrorf(arrayRangeForms, "%q is too large", s)
		}
		return int(n), nil
	}
	if limited {
		if throttle, err = number(limit); err != nil {
			return nil, 0, err
		}
		if throttle == 0 {
			return nil, 0, valueErrorf(arrayRangeForms, "at most 0 trials at the same time never start")
		}
	}
	found, read := map[int]bool{}, 0
	for part := range strings.SplitSeq(list, ",") {
		span, every, _ := strings.Cut(part, ":")
		low, high, isSpan := strings.Cut(span, "-")
		first, err := number(low)
		if err != nil {
			return nil, 0, err
		}
		last, step := first, 1
		if isSpan {
			if last, err = number(high); err != nil {
				return nil, 0, err
			}
		}
		if every != "" {
			if step, err = number(every); err != nil {
				return nil, 0, err
			}
		}
		if last < first || step == 0 {
			return nil, 0, valueErrorf(arrayRangeForms, "%q contains no index", part)
		}
		for i := first; i <= last && len(found) <= maxTrials; i += step {
			if read++; read > maxArrayIndices {
				return nil, 0, valueErrorf(arrayRangeForms, "more than %d indices with their repetitions", maxArrayIndices)
			}
			found[i] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), throttle, nil
}

// expandArray turns the array of a sweep into an axis of its grid.
func (d *decoder) expandArray(s *Sweep) {
	const key, limit = "sweep.array", "sweep.throttle"
	if !d.isValid(key) {
		return
	}
	indices, throttle, _ := s.Range.Parse() // the decoder has parsed it
	axis := Axis{path: strings.Split(arrayTaskKey, "."), at: key}
	for _, i := range indices {
		axis.values = append(axis.values, int64(i))
	}
	s.Grid = append(s.Grid, axis)
	if throttle == 0 {
		return
	}
	if d.isValid(limit) {
		d.report(limit, "remove one of them", "conflicts with %%%d in %s", throttle, key)
	}
	s.Throttle = throttle
}
