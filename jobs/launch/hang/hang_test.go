package hang

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

const interval = 2 * time.Second

var start = time.Unix(1e9, 0)

// TestNoFalseAlarm lets a program pause 1,000 times for random times below the limits.
func TestNoFalseAlarm(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	limits := Limits{Silence: time.Minute, Progress: 2 * time.Minute, File: time.Minute, Heartbeat: time.Minute, Startup: time.Hour, Pause: 3 * time.Hour}
	now := start
	d := New(limits, interval, now)
	wait := func(limit time.Duration) {
		t.Helper()
		for end := now.Add(time.Duration(random.Int64N(int64(limit)))); now.Before(end); {
			now = now.Add(interval)
			if now.After(end) {
				now = end
			}
			if random.IntN(50) == 0 {
				now = now.Add(24 * time.Hour) // the launcher was suspended
				end = now
			}
			if stalls := d.Check(now); len(stalls) > 0 {
				t.Fatalf("false alarm after %s: %v", now.Sub(start), stalls)
			}
		}
	}
	wait(limits.Startup)
	for step := range 1000 {
		d.Output()
		d.FileChanged()
		d.Step(step)
		d.Beat(step % 2)
		d.Beat((step + 1) % 2)
		if step%10 == 0 {
			d.Pause(true)
			wait(limits.Pause - 2*interval)
			d.Pause(false)
		}
		wait(time.Minute)
	}
}

// TestAlarms checks that each limit causes an alarm, and when.
func TestAlarms(t *testing.T) {
	for _, tt := range []struct {
		name   string
		limits Limits
		// act is called before each check, with the number of the check from 1.
		act  func(d *Detector, check int)
		want map[int][]Stall // by check; a check every 2 s
	}{
		{"silence", Limits{Silence: 6 * time.Second}, func(d *Detector, check int) {
			if check <= 2 {
				d.Output()
			}
		}, map[int][]Stall{5: {{Cause: Silence, After: 6 * time.Second}}, 8: {{Cause: Silence, After: 6 * time.Second}}}},
		{"no output from the start", Limits{Silence: 16 * time.Second}, nil, map[int][]Stall{8: {{Cause: Silence, After: 16 * time.Second}}}},
		{"startup", Limits{Silence: 6 * time.Second, Startup: 10 * time.Second}, nil, map[int][]Stall{7: {{Cause: Silence, After: 6 * time.Second}}, 10: {{Cause: Silence, After: 6 * time.Second}}}},
		{"the same step again", Limits{Progress: 16 * time.Second}, func(d *Detector, _ int) { d.Step(7) }, map[int][]Stall{9: {{Cause: Progress, After: 16 * time.Second}}}},
		{"file", Limits{File: 16 * time.Second}, func(d *Detector, _ int) { d.Output() }, map[int][]Stall{8: {{Cause: File, After: 16 * time.Second}}}},
		{"heartbeat of one rank", Limits{Heartbeat: 16 * time.Second}, func(d *Detector, check int) {
			d.Beat(0)
			if check == 1 {
				d.Beat(3)
				d.Beat(4)
			}
			if check == 2 {
				d.Forget(4)
			}
		}, map[int][]Stall{9: {{Cause: Heartbeat, After: 16 * time.Second, Ranks: []int{3}}}}},
		{"no heartbeats at all", Limits{Heartbeat: 4 * time.Second}, nil, nil},
		{"endless pause", Limits{Silence: 4 * time.Second, Pause: 12 * time.Second}, func(d *Detector, check int) {
			if check == 1 {
				d.Pause(true)
			}
		}, map[int][]Stall{8: {{Cause: Silence, After: 4 * time.Second}}, 10: {{Cause: Silence, After: 4 * time.Second}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := New(tt.limits, interval, start)
			got := map[int][]Stall{}
			for check := 1; check <= 10; check++ {
				if tt.act != nil {
					tt.act(d, check)
				}
				if stalls := d.Check(start.Add(time.Duration(check) * interval)); stalls != nil {
					got[check] = stalls
				}
			}
			if tt.want == nil {
				tt.want = map[int][]Stall{}
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestPersists checks that a change of the same kind ends a stall.
func TestPersists(t *testing.T) {
	d := New(Limits{Silence: 4 * time.Second, Heartbeat: 4 * time.Second}, interval, start)
	d.Beat(0)
	d.Beat(1)
	d.Check(start)
	d.Check(start.Add(interval))
	d.Beat(1)
	stalls := d.Check(start.Add(2 * interval))
	if len(stalls) != 2 || stalls[0].Cause != Heartbeat || stalls[1].Cause != Silence {
		t.Fatalf("got %v", stalls)
	}
	d.Beat(1)
	d.FileChanged()
	if !d.Persists(stalls[0]) || !d.Persists(stalls[1]) {
		t.Error("other changes end the stalls")
	}
	d.Beat(0)
	d.Output()
	if d.Persists(stalls[0]) || d.Persists(stalls[1]) {
		t.Error("the stalls persist")
	}
}

// TestForgetEndsStall checks that a stall does not persist after its rank has ended, also if the end is
// recorded repeatedly.
func TestForgetEndsStall(t *testing.T) {
	d := New(Limits{Heartbeat: 4 * time.Second}, interval, start)
	d.Beat(0)
	d.Check(start)
	d.Check(start.Add(interval))
	d.Forget(1) // has never sent a heartbeat
	stalls := d.Check(start.Add(2 * interval))
	if len(stalls) != 1 || !d.Persists(stalls[0]) {
		t.Fatalf("got %v, want a stall that persists", stalls)
	}
	for range 2 {
		d.Forget(0)
		if d.Persists(stalls[0]) {
			t.Error("the stall persists")
		}
	}
}

// TestConfirm checks that a change after the check removes a stall, and only the ranks that have
// changed.
func TestConfirm(t *testing.T) {
	limit := 4 * time.Second
	stalled := func() (*Detector, []Stall) {
		d := New(Limits{Silence: limit, File: limit, Heartbeat: limit}, interval, start)
		for rank := range 3 {
			d.Beat(rank)
		}
		d.Check(start)
		d.Check(start.Add(interval))
		return d, d.Check(start.Add(2 * interval))
	}
	for _, tt := range []struct {
		name   string
		change func(d *Detector)
		want   []Stall
	}{
		{"no change", func(*Detector) {}, []Stall{{Heartbeat, limit, []int{0, 1, 2}}, {File, limit, nil}, {Silence, limit, nil}}},
		{"output and a heartbeat", func(d *Detector) { d.Output(); d.Beat(1) }, []Stall{{Heartbeat, limit, []int{0, 2}}, {File, limit, nil}}},
		{"end of a rank", func(d *Detector) { d.Forget(1) }, []Stall{{Heartbeat, limit, []int{0, 2}}, {File, limit, nil}, {Silence, limit, nil}}},
		{"all heartbeats", func(d *Detector) { d.Beat(0); d.Beat(1); d.Beat(2) }, []Stall{{File, limit, nil}, {Silence, limit, nil}}},
		{"everything", func(d *Detector) { d.Beat(0); d.Beat(1); d.Beat(2); d.Output(); d.FileChanged() }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, stalls := stalled()
			tt.change(d)
			got := d.Confirm(stalls)
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			for _, s := range got {
				if !d.Persists(s) {
					t.Errorf("%v does not persist", s)
				}
			}
		})
	}
}

// TestString checks the text of a stall.
func TestString(t *testing.T) {
	for limit, want := range map[time.Duration]string{
		30 * time.Second: "30s", 90 * time.Second: "1m30s", 30 * time.Minute: "30m", 2 * time.Hour: "2h", 90 * time.Minute: "1h30m", time.Hour + 10*time.Second: "1h0m10s",
	} {
		if got := (Stall{Cause: Silence, After: limit}).String(); got != "no output for "+want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestRanksThatStopTogether checks that ranks whose last heartbeats were read at different times are
// in one report.
func TestRanksThatStopTogether(t *testing.T) {
	now := time.Unix(0, 0)
	d := New(Limits{Heartbeat: 30 * time.Second}, 2*time.Second, now)
	var got []Stall
	for range 20 {
		now = now.Add(2 * time.Second)
		switch now.Unix() {
		case 6:
			d.Beat(0)
		case 8:
			d.Beat(1)
		}
		got = append(got, d.Check(now)...)
	}
	if len(got) != 1 || !slices.Equal(got[0].Ranks, []int{0, 1}) {
		t.Errorf("got %v, want one report of ranks 0 and 1", got)
	}
}
