package launch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launch/hang"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// A fakeWatch is a watch of two ranks with a fake clock. The ranks act by changing files.
type fakeWatch struct {
	*programWatch
	t     *testing.T
	clock time.Time
	found []hang.Stall
	done  chan struct{}
}

func newFakeWatch(t *testing.T, limits hang.Limits) *fakeWatch {
	t.Helper()
	dir := newRun(t)
	f := &fakeWatch{t: t, clock: time.Unix(1e9, 0), done: make(chan struct{})}
	a := &attempt{output: 1, o: Options{Dir: dir, Job: &jobs.Job{Command: &jobs.Command{Output: jobs.OutputPerRank}}}}
	f.programWatch = &programWatch{a: a, limits: limits, beats: map[int]time.Time{}, output: filepath.Join(dir.Path, "log"), file: filepath.Join(dir.Path, "growing"),
		now: func() time.Time { return f.clock },
		outcome: func() rendezvous.Outcome {
			return rendezvous.Outcome{Ranks: []rendezvous.RankStatus{{Rank: 0, State: rendezvous.Joined}, {Rank: 1, State: rendezvous.Joined}}}
		},
		collect: func(s hang.Stall) hangReport {
			f.found = append(f.found, s)
			close(f.done)
			return hangReport{suspect: -1}
		}}
	f.d = hang.New(limits, progressInterval, f.clock)
	if err := dir.MakeHeartbeats(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir.RankOutput(1), 0o700); err != nil {
		t.Fatal(err)
	}
	return f
}

// change appends to a file at the fake time.
func (f *fakeWatch) change(path string) {
	f.t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = file.WriteString("x\n")
		file.Close()
	}
	if err == nil {
		err = os.Chtimes(path, f.clock, f.clock)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// wait advances the clock, with a check at each interval.
func (f *fakeWatch) wait(d time.Duration, step int) {
	for end := f.clock.Add(d); f.clock.Before(end) && f.programWatch.found == nil; {
		if f.clock = f.clock.Add(progressInterval); f.clock.After(end) {
			f.clock = end
			return // the next change is just before the check
		}
		f.check(step, false)
	}
}

// TestWatchNoFalseAlarm lets a program pause 200 times for random times below each kind of limit,
// many of them close to it. A pause above the limit is found.
func TestWatchNoFalseAlarm(t *testing.T) {
	const limit = 50 * time.Second // its tenth is not a multiple of the check interval
	for _, tt := range []struct {
		name   string
		limits hang.Limits
		act    func(f *fakeWatch) // after each pause
		want   hang.Cause
	}{
		{"log", hang.Limits{Silence: limit}, func(f *fakeWatch) { f.change(f.output) }, hang.Silence},
		{"output per rank", hang.Limits{Silence: limit}, func(f *fakeWatch) { f.change(filepath.Join(f.a.o.Dir.RankOutput(1), "rank-00001.out")) }, hang.Silence},
		{"file", hang.Limits{File: limit}, func(f *fakeWatch) { f.change(f.file) }, hang.File},
		{"step", hang.Limits{Progress: limit}, func(*fakeWatch) {}, hang.Progress},
		{"heartbeats", hang.Limits{Heartbeat: limit}, func(f *fakeWatch) { f.change(f.a.o.Dir.Heartbeat(0)); f.change(f.a.o.Dir.Heartbeat(1)) }, hang.Heartbeat},
	} {
		t.Run(tt.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(3, 4))
			f := newFakeWatch(t, tt.limits)
			step := 0
			for pause := range 200 {
				step++
				tt.act(f)
				f.check(step, false)
				d := time.Duration(random.Int64N(int64(limit)))
				if random.IntN(2) == 0 {
					d = limit - time.Duration(random.Int64N(int64(limit/10))) - 1
				}
				f.wait(d, step)
				if f.programWatch.found != nil {
					t.Fatalf("false alarm %v in pause %d of %s", f.current, pause, d)
				}
			}
			tt.act(f)
			f.wait(limit+limit/5, step)
			if f.programWatch.found == nil {
				t.Fatal("no alarm after a pause above the limit")
			}
			<-f.done
			if len(f.found) != 1 || f.found[0].Cause != tt.want {
				t.Errorf("got %v, want %s", f.found, tt.want)
			}
		})
	}
}

// TestWatchWaitsForComponents checks that no limit applies while components start, because the
// program has not started, and that the limits apply from then on.
func TestWatchWaitsForComponents(t *testing.T) {
	const limit = 50 * time.Second
	f := newFakeWatch(t, hang.Limits{Silence: limit})
	f.a.o.Site = generic()
	f.a.o.Job.Components = make([]jobs.Component, 2)
	last := f.a.rounds()[componentReadyRound(1)]
	joined := make(chan struct{})
	close(joined)
	f.d, f.joined = nil, joined
	if f.wait(10*limit, -1); f.d != nil || f.programWatch.found != nil {
		t.Fatalf("the limits apply while components start: %v", f.current)
	}
	if _, err := last([][]byte{[]byte("ready")}); err != nil || !f.a.mayHaveStarted() {
		t.Fatalf("the components are ready: %v", err)
	}
	if f.wait(2*limit, -1); f.programWatch.found == nil {
		t.Fatal("no alarm after the components were ready")
	}
	<-f.done
}

// TestWatchIgnoresItsMessages checks that the messages of the watch, which the log of the run has, do
// not count as output of the program: the hang is reported until the program prints.
func TestWatchIgnoresItsMessages(t *testing.T) {
	const limit = 50 * time.Second
	for _, tt := range []struct {
		name string
		err  error // of the evidence
	}{
		{name: "hang"},
		{name: "hang without evidence", err: errors.New("the disk is full")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakeWatch(t, hang.Limits{Silence: limit})
			f.watch.Action = jobs.WatchReport
			said := 0
			f.a.o.Say = func(string) { said++; f.change(f.output) }
			f.collect = func(hang.Stall) hangReport { return hangReport{suspect: -1, err: tt.err} }
			for f.wait(2*limit, -1); f.programWatch.found != nil; time.Sleep(time.Millisecond) {
				f.check(-1, false)
			}
			next := func() string {
				f.clock = f.clock.Add(progressInterval)
				f.check(-1, false)
				return f.a.hang
			}
			if got := next(); said == 0 || got == "" {
				t.Fatalf("the hang is over after %d messages", said)
			}
			f.change(f.output)
			if got := next(); got != "" {
				t.Errorf("the program has printed, but %q is reported", got)
			}
		})
	}
}

// TestTracesOfFailedAttempts checks that the flight-recorder dumps of each failed attempt are in its
// evidence, without command.watch.
func TestTracesOfFailedAttempts(t *testing.T) {
	_, said, err := launched(t, 1, "program", `[restart]
max_without_progress = 1
[command]
argv = ["/bin/sh", "-c", "echo $DDPBATCH_ATTEMPT >${TORCH_FR_DUMP_TEMP_FILE}0; exit 1"]
`, nil)
	if err != nil {
		t.Fatal(err)
	}
	for attempt := 1; attempt <= 2; attempt++ {
		path := filepath.Join(lastDir.Evidence(attempt), "nccl_trace_rank_0")
		if text, err := os.ReadFile(path); err != nil || string(text) != fmt.Sprintln(attempt) || !strings.Contains(said, "1 dump of PyTorch's flight recorder: "+filepath.Dir(path)) {
			t.Errorf("attempt %d: got %q, %v\n%s", attempt, text, err, said)
		}
	}
}
