package slurm

import (
	"fmt"
	"strings"
)

// variables reads SLURM_ variables and keeps the first thing that is wrong with
// one, so that what reads many of them checks once.
type variables struct {
	lookup func(string) (string, bool)
	err    error
}

func (v *variables) fail(format string, args ...any) {
	if v.err == nil {
		v.err = fmt.Errorf(format, args...)
	}
}

// text returns a variable that must be set and not empty.
func (v *variables) text(name string) string {
	s, ok := v.lookup(name)
	if !ok || s == "" {
		v.fail("%s is not set", name)
	}
	return s
}

// number returns a variable that must be a number of zero or more.
func (v *variables) number(name string) int {
	s := v.text(name)
	n, err := smallNumber(s)
	if err != nil {
		v.fail("%s: %w", name, err)
	}
	return n
}

// numberOr returns a number, or what stands in for it where it is not set.
func (v *variables) numberOr(name string, unset int) int {
	if _, ok := v.lookup(name); !ok {
		return unset
	}
	return v.number(name)
}

// id returns a job's or step's number as text: digits only, for it becomes part
// of file names and arguments.
func (v *variables) id(name string) string {
	s := v.text(name)
	if !isID(s) {
		v.fail("%s: %q is not a number", name, s)
	}
	return s
}

// hosts returns a variable that must be a host list of one host at least.
func (v *variables) hosts(name string) []string {
	s := v.text(name)
	hosts, err := ExpandHosts(s)
	switch {
	case err != nil:
		v.fail("%s: %w", name, err)
	case len(hosts) == 0:
		v.fail("%s: %q holds no host", name, s)
	}
	return hosts
}

// ranksHere returns the ranks on this node by local rank; false where they are
// not told.
func (v *variables) ranksHere() ([]int, bool) {
	list, ok := v.lookup("SLURM_GTIDS")
	if !ok {
		return nil, false
	}
	var ranks []int
	for part := range strings.SplitSeq(list, ",") {
		rank, err := smallNumber(part)
		if err != nil {
			v.fail("SLURM_GTIDS: %w", err)
			return nil, false
		}
		ranks = append(ranks, rank)
	}
	return ranks, true
}

// isID says whether s is a job's number: 1 to 10 digits, as it has 32 bits.
func isID(s string) bool {
	if s == "" || len(s) > 10 {
		return false
	}
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return true
}
