package slurm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// jobRecord is one job as one of Slurm's programs shows it. Its state has no id
// yet: a record may stand for many elements of an array.
type jobRecord struct {
	raw   string // the job's own number; an element has one, too
	array string // the number of the array; empty for other jobs
	tasks string // of an array: one index or, while they are pending, an expression
	state JobState
}

// answers is what is known about jobs, by id: as "18" for a job, and for an
// element both as "18_3" and by its own number. An array's "18" is no entry.
type answers struct {
	byID     map[string]JobState
	elements map[string][]int // of an array, in the order of arrival
}

func newAnswers() answers {
	return answers{byID: make(map[string]JobState), elements: make(map[string][]int)}
}

// add takes in a record about one of the jobs asked for. The first answer about
// a job counts: what squeue says is newer than the accounts, and a later line
// may be the tail of a name with a line break in it.
func (a answers) add(r jobRecord, wanted map[string]bool) {
	if r.array == "" {
		if wanted[r.raw] {
			a.set(r.raw, r.state)
		}
		return
	}
	if !wanted[r.array] && !wanted[r.raw] {
		return
	}
	elements, err := appendElements(nil, r.tasks)
	if err != nil {
		return
	}
	for _, element := range elements {
		j := r.state
		j.ArrayJobID, j.ArrayTask = r.array, strconv.Itoa(element)
		if a.set(elementID(r.array, element), j) {
			a.elements[r.array] = append(a.elements[r.array], element)
		}
		// The array's own number is also that of one element, its last to start.
		if r.raw != r.array {
			a.set(r.raw, j)
		}
	}
}

func (a answers) set(id string, j JobState) bool {
	if _, have := a.byID[id]; have {
		return false
	}
	j.ID = id
	a.byID[id] = j
	return true
}

func (a answers) empty() bool { return len(a.byID) == 0 }

// array returns the states of an array's elements, by index.
func (a answers) array(id string) []JobState {
	var states []JobState
	for _, element := range slices.Sorted(slices.Values(a.elements[id])) {
		states = append(states, a.byID[elementID(id, element)])
	}
	return states
}

// get returns what is known about an id; of an array the sum of its elements.
func (a answers) get(id string) (JobState, bool) {
	if len(a.elements[id]) > 0 {
		return sumUp(id, a.array(id)), true
	}
	j, ok := a.byID[id]
	return j, ok
}

// complete says whether nothing more can be learned about an id from the
// accounts. The controller forgets the elements of an array one by one, so that
// those it still knows do not speak for all, unless one is still to end.
func (a answers) complete(id string) bool {
	j, ok := a.get(id)
	return ok && (len(a.elements[id]) == 0 || !j.Done())
}

// sumUp makes one state of an array's: it is running while an element is, done
// once all are, and has succeeded only if all have.
func sumUp(id string, elements []JobState) JobState {
	sum := JobState{ID: id, ArrayJobID: id, Name: elements[0].Name, Restarts: -1}
	counts := make(map[State]int)
	var order []State
	for _, j := range elements {
		if counts[j.State]++; counts[j.State] == 1 {
			order = append(order, j.State)
		}
		if moreTelling(j.State, sum.State) {
			sum.State, sum.ExitCode = j.State, j.ExitCode
		}
		sum.Restarts = max(sum.Restarts, j.Restarts)
	}
	var parts []string
	for _, state := range order {
		parts = append(parts, fmt.Sprintf("%d %s", counts[state], state))
	}
	sum.Reason = strings.Join(parts, ", ")
	return sum
}

// moreTelling says whether an array is rather in state s than in what its
// elements so far have made of it.
func moreTelling(s, soFar State) bool {
	rank := func(s State) int {
		switch {
		case s == "":
			return 0
		case s == StateCompleted:
			return 1
		case s.Done():
			return 2
		case s == StateRunning:
			return 4
		}
		return 3
	}
	return rank(s) > rank(soFar)
}
