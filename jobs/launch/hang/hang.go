// Package hang decides whether a program hangs: whether its output, its steps, a file, or the
// heartbeats of its ranks have not changed for longer than their limits.
//
// The package guarantees:
//
//   - Time counts only while it is observed. If the caller is suspended or slow, the time between two
//     checks counts as at most two check intervals, so it causes no false alarm.
//   - A change counts from the check that follows it. So a pause below a limit causes no alarm.
//   - No limit applies during the startup, or during an allowed pause.
//   - A condition that was met once is reported again only after a change, or after its limit
//     has passed again.
//
// The package does not read files or clocks, and does not stop anything.
package hang

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Limits are the maximum times without a change. A limit of 0 is not checked.
type Limits struct {
	Silence   time.Duration // without output of the ranks
	Progress  time.Duration // without a higher step
	File      time.Duration // without a change of a file
	Heartbeat time.Duration // without a heartbeat of a rank that has sent one
	Startup   time.Duration // time after the start in which no limit applies
	Pause     time.Duration // maximum duration of an allowed pause
}

// A Cause is a limit that was reached.
type Cause string

// Causes of a stall.
const (
	Silence   Cause = "silence"
	Progress  Cause = "progress"
	File      Cause = "file"
	Heartbeat Cause = "heartbeat"
)

// A Stall describes a limit that was reached.
type Stall struct {
	Cause Cause
	After time.Duration // the limit
	Ranks []int         // ranks without heartbeat; nil for other causes
}

// A Detector observes one attempt of a program. It is not safe for concurrent use.
type Detector struct {
	limits   Limits
	interval time.Duration // of checks; at most twice this time counts between two checks

	last    time.Time     // time of the last check
	elapsed time.Duration // observed time since the start
	changed map[Cause]time.Duration
	step    int
	beats   map[int]time.Duration // by rank
	reports map[int]time.Duration // by rank: time of the last report of a missing heartbeat
	fresh   map[Cause]bool        // changes since the last check
	beating map[int]bool          // ranks with a heartbeat since the last check
	events  map[Cause]int         // number of changes
	beaten  map[int]int           // number of heartbeats, by rank
	before  map[Cause]int         // number of changes when a stall was reported
	paused  bool
	since   time.Duration // start of the pause
}

// New returns a detector for an attempt whose ranks have started now. The caller calls
// [Detector.Check] at the given interval.
func New(limits Limits, interval time.Duration, now time.Time) *Detector {
	return &Detector{limits: limits, interval: interval, last: now, step: -1, changed: map[Cause]time.Duration{},
		beats: map[int]time.Duration{}, reports: map[int]time.Duration{}, fresh: map[Cause]bool{}, beating: map[int]bool{}, events: map[Cause]int{}, beaten: map[int]int{}, before: map[Cause]int{}}
}

// Output records that the ranks have printed something.
func (d *Detector) Output() { d.change(Silence) }

func (d *Detector) change(c Cause) {
	d.fresh[c] = true
	d.events[c]++
}

// Step records the newest step of the program.
func (d *Detector) Step(step int) {
	if step > d.step {
		d.step = step
		d.change(Progress)
	}
}

// MayHaveProgressed records that the program may have reached a higher step.
func (d *Detector) MayHaveProgressed() { d.change(Progress) }

// FileChanged records a change of the file.
func (d *Detector) FileChanged() { d.change(File) }

// Beat records a heartbeat of a rank.
func (d *Detector) Beat(rank int) {
	d.beats[rank], d.beating[rank] = d.elapsed, true
	d.beaten[rank]++
	delete(d.reports, rank)
}

// Forget stops the checks of a rank that has ended. The end counts as a heartbeat for stalls that were
// reported.
func (d *Detector) Forget(rank int) {
	if _, checked := d.beats[rank]; checked {
		d.Beat(rank)
		delete(d.beats, rank)
	}
}

// Pause begins or ends an allowed pause.
func (d *Detector) Pause(on bool) {
	switch {
	case on && !d.paused:
		d.paused, d.since = true, d.elapsed
	case !on && d.paused:
		d.endPause()
	}
}

// endPause ends the pause. The limits count from now on.
func (d *Detector) endPause() {
	d.paused = false
	d.restart()
}

// restart makes all limits count from now on.
func (d *Detector) restart() {
	for _, c := range []Cause{Silence, Progress, File} {
		d.changed[c] = d.elapsed
	}
	for rank := range d.beats {
		d.beats[rank] = d.elapsed
	}
}

// Check advances the time and returns the limits that were reached since the last check.
func (d *Detector) Check(now time.Time) (stalls []Stall) {
	passed := min(max(0, now.Sub(d.last)), 2*d.interval)
	d.last = now
	d.elapsed += passed
	for c := range d.fresh {
		d.changed[c] = d.elapsed
	}
	for rank := range d.beating {
		if _, ok := d.beats[rank]; ok {
			d.beats[rank] = d.elapsed
		}
	}
	clear(d.fresh)
	clear(d.beating)
	if d.paused && d.elapsed-d.since >= d.limits.Pause {
		d.endPause()
	}
	if d.elapsed < d.limits.Startup {
		d.restart()
		return nil
	}
	if d.paused {
		return nil
	}
	for _, c := range []struct {
		cause Cause
		limit time.Duration
	}{{Heartbeat, d.limits.Heartbeat}, {Progress, d.limits.Progress}, {File, d.limits.File}, {Silence, d.limits.Silence}} {
		switch {
		case c.limit == 0:
		case c.cause == Heartbeat:
			if ranks := d.missing(); len(ranks) > 0 {
				stalls = append(stalls, Stall{Heartbeat, c.limit, ranks})
				d.before[Heartbeat] = d.count(stalls[len(stalls)-1])
			}
		case d.elapsed-d.changed[c.cause] >= c.limit:
			stalls = append(stalls, Stall{c.cause, c.limit, nil})
			d.changed[c.cause] = d.elapsed
			d.before[c.cause] = d.events[c.cause]
		}
	}
	return stalls
}

// Persists reports whether nothing has changed since the last report of the stall. It is false
// during an allowed pause.
func (d *Detector) Persists(s Stall) bool { return !d.paused && d.count(s) == d.before[s.Cause] }

// Confirm returns the stalls that still hold after changes were recorded since [Detector.Check], for
// callers that do not record all changes before each check.
func (d *Detector) Confirm(stalls []Stall) (confirmed []Stall) {
	for _, s := range stalls {
		if s.Cause == Heartbeat {
			s.Ranks = slices.DeleteFunc(slices.Clone(s.Ranks), func(rank int) bool {
				_, missing := d.reports[rank]
				return !missing
			})
			if len(s.Ranks) > 0 {
				d.before[Heartbeat] = d.count(s)
				confirmed = append(confirmed, s)
			}
		} else if d.Persists(s) {
			confirmed = append(confirmed, s)
		}
	}
	return confirmed
}

// count returns the number of changes that end a stall.
func (d *Detector) count(s Stall) (n int) {
	if s.Cause != Heartbeat {
		return d.events[s.Cause]
	}
	for _, rank := range s.Ranks {
		n += d.beaten[rank]
	}
	return n
}

// missing returns the ranks whose last heartbeat is too old. If other ranks are close to the limit, it
// waits up to a fifth of the limit, so that ranks that stopped at about the same time are reported
// together.
func (d *Detector) missing() (ranks []int) {
	slack, oldest, almost := d.limits.Heartbeat/5, time.Duration(0), false
	for rank, at := range d.beats {
		age := d.elapsed - max(at, d.reports[rank])
		oldest = max(oldest, age)
		if age >= d.limits.Heartbeat {
			ranks = append(ranks, rank)
		} else if age >= d.limits.Heartbeat-slack {
			almost = true
		}
	}
	if almost && oldest < d.limits.Heartbeat+slack {
		return nil
	}
	slices.Sort(ranks)
	for _, rank := range ranks {
		d.reports[rank] = d.elapsed
	}
	return ranks
}

// String returns the condition as text, without the ranks.
func (s Stall) String() string {
	what := map[Cause]string{Silence: "no output", Progress: "no progress", File: "no change of the watched file", Heartbeat: "no heartbeat"}
	return fmt.Sprintf("%s for %s", what[s.Cause], formatLimit(s.After))
}

// formatLimit formats a limit as in a job file, such as "30m".
func formatLimit(d time.Duration) string {
	text := d.String()
	if d >= time.Minute && d%time.Minute == 0 {
		text = strings.TrimSuffix(text, "0s")
	}
	if d >= time.Hour && d%time.Hour == 0 {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
