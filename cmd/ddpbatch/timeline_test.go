package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// A timelineEvent is an event in the Trace Event Format.
type timelineEvent struct {
	Phase    string         `json:"ph"`
	Name     string         `json:"name"`
	Category string         `json:"cat"`
	ID       string         `json:"id"`
	Process  *int           `json:"pid"`
	Thread   *int           `json:"tid"`
	At       *float64       `json:"ts"`
	Duration *float64       `json:"dur"`
	Args     map[string]any `json:"args"`
}

func (e timelineEvent) end() float64 { return *e.At + *e.Duration }

// within reports whether e is inside outer. It tolerates the rounding of float64.
func (e timelineEvent) within(outer timelineEvent) bool {
	return *e.At >= *outer.At && e.end() <= outer.end()+1e-6
}

// checkTimeline implements "timeline FILE RANKS FIRST LAST". It checks the events against the
// Trace Event Format, and checks that each rank has the steps from FIRST to LAST with all
// their parts.
func checkTimeline(ts *testscript.TestScript, neg bool, args []string) {
	var file struct {
		Events []timelineEvent `json:"traceEvents"`
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &file))
	ranks, err := strconv.Atoi(args[1])
	ts.Check(err)
	byRank := map[int][]timelineEvent{}
	for _, e := range file.Events {
		if err := e.wellFormed(); err != nil {
			ts.Fatalf("%v: %+v", err, e)
		}
		byRank[*e.Process] = append(byRank[*e.Process], e)
	}
	if len(byRank) != ranks {
		ts.Fatalf("%d processes, want %d", len(byRank), ranks)
	}
	first, err := strconv.Atoi(args[2])
	ts.Check(err)
	last, err := strconv.Atoi(args[3])
	ts.Check(err)
	for rank, events := range byRank {
		if err := nested(events); err != nil {
			ts.Fatalf("rank %d: %v", rank, err)
		}
		for step := first; step <= last; step++ {
			if err := checkStep(events, step); err != nil {
				ts.Fatalf("rank %d, step %d: %v", rank, step, err)
			}
		}
	}
}

// wellFormed checks a single event against the format.
func (e timelineEvent) wellFormed() error {
	switch {
	case e.Name == "" || e.Process == nil || e.Thread == nil || e.At == nil || *e.At < 0:
		return fmt.Errorf("without name, pid, tid or a time")
	case e.Phase == "X" && (e.Duration == nil || *e.Duration < 0):
		return fmt.Errorf("a complete event without a duration")
	case (e.Phase == "b" || e.Phase == "e") && (e.ID == "" || e.Category == ""):
		return fmt.Errorf("an asynchronous event without id and category")
	case e.Phase == "M" && len(e.Args) != 1:
		return fmt.Errorf("metadata about nothing")
	}
	switch e.Phase {
	case "X", "b", "e", "M":
		return nil
	}
	return fmt.Errorf("a phase that is never written")
}

// nested checks that events on a track are nested or in sequence, that every asynchronous
// event ends, and that every track has a name.
func nested(events []timelineEvent) error {
	open, began, named := map[int][]timelineEvent{}, map[string]float64{}, map[int]bool{}
	for _, e := range events {
		switch track := *e.Thread; e.Phase {
		case "M":
			named[track] = named[track] || e.Name == "thread_name"
		case "b":
			began[e.ID] = *e.At
		case "e":
			if at, ok := began[e.ID]; !ok || at > *e.At {
				return fmt.Errorf("%s ends before it begins", e.Name)
			}
			delete(began, e.ID)
		case "X":
			if !named[track] {
				return fmt.Errorf("track %d of %s has no name", track, e.Name)
			}
			for n := len(open[track]); n > 0 && open[track][n-1].end() <= *e.At+1e-6; n = len(open[track]) {
				open[track] = open[track][:n-1]
			}
			if n := len(open[track]); n > 0 && !e.within(open[track][n-1]) {
				return fmt.Errorf("%s at %v is neither within %s at %v nor after it", e.Name, *e.At, open[track][n-1].Name, *open[track][n-1].At)
			}
			open[track] = append(open[track], e)
		}
	}
	if len(began) > 0 {
		return fmt.Errorf("%d asynchronous events do not end", len(began))
	}
	return nil
}

// checkStep checks that a step contains each of its parts once and completes all requested
// collectives. It also checks that ranks start to reduce gradients during the backward pass.
func checkStep(events []timelineEvent, step int) error {
	var whole *timelineEvent
	for _, e := range events {
		if e.Phase == "X" && e.Name == fmt.Sprintf("step %d", step) && e.Args["step"] == float64(step) {
			whole = &e
		}
	}
	if whole == nil {
		return fmt.Errorf("is missing")
	}
	parts, operations, reduced, backward := map[string]int{}, map[string]int{}, map[string]bool{}, timelineEvent{}
	for _, e := range events {
		if e.Phase != "X" || !e.within(*whole) {
			if e.Category == "communication" && *e.At < whole.end() && e.end() > *whole.At {
				return fmt.Errorf("%s leaves its step", e.Name)
			}
			continue
		}
		switch parts[e.Name]++; {
		case e.Name == "backward":
			backward = e
		case e.Category == "communication":
			hidden, exposed := e.Args["hidden us"].(float64), e.Args["exposed us"].(float64)
			if off := hidden + exposed - *e.Duration; hidden < 0 || exposed < 0 || off*off > 1e-6 {
				return fmt.Errorf("%s takes %v, of which %v and %v", e.Name, *e.Duration, hidden, exposed)
			}
			operations[e.Name]++
			if !strings.HasPrefix(e.Name, "all-gather") {
				reduced[e.Name] = true
			}
		}
	}
	for _, name := range []string{"input", "forward", "backward", "finish", "optimizer"} {
		if parts[name] != 1 {
			return fmt.Errorf("%d times %s", parts[name], name)
		}
	}
	if len(reduced) < 2 {
		return fmt.Errorf("%d buckets, want several", len(reduced))
	}
	for _, e := range events {
		if e.Phase == "b" && *e.At >= *whole.At && *e.At <= whole.end() {
			name := e.Args["operation"].(string)
			if reduced[name] && (*e.At < *backward.At || *e.At > backward.end()) {
				return fmt.Errorf("%s was asked for at %v, and the backward pass is from %v to %v", name, *e.At, *backward.At, backward.end())
			}
			operations[name]--
		}
	}
	for name, more := range operations {
		if more != 0 {
			return fmt.Errorf("%s: %d times more was it done than asked for", name, more)
		}
	}
	return nil
}
