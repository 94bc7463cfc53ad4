package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// TestThin checks that a line keeps its peaks if points are omitted.
func TestThin(t *testing.T) {
	var points []point
	for i := range 10000 {
		points = append(points, point{float64(i), math.Sin(float64(i) / 100)})
	}
	points[7777].y, points[3333].y = 50, -50
	some := downsample(points, 400)
	lo, hi := valueRange(some, func(p point) float64 { return p.y })
	if len(some) > 400 || lo != -50 || hi != 50 || some[0] != points[0] || some[len(some)-1] != points[9999] {
		t.Errorf("%d points, from %v to %v", len(some), lo, hi)
	}
	for i := 1; i < len(some); i++ {
		if some[i].x <= some[i-1].x {
			t.Fatalf("out of order at %d", i)
		}
	}
}

// TestScale checks the range and the number of ticks of an axis.
func TestScale(t *testing.T) {
	for _, tt := range []struct{ lo, hi, from, to float64 }{
		{0, 100, 0, 100}, {0.55, 0.83, 0.5, 0.9}, {-3, 7, -4, 8}, {5, 5, 2, 8}, {0, 0, -1, 1}, {1e-9, 1.2e-9, 1e-9, 1.25e-9},
	} {
		ticks, from, to := axisTicks(tt.lo, tt.hi, 5)
		if math.Abs(from-tt.from) > 1e-12 || math.Abs(to-tt.to) > 1e-12 || len(ticks) < 3 || len(ticks) > 12 {
			t.Errorf("%v to %v: %v, from %v to %v", tt.lo, tt.hi, ticks, from, to)
		}
	}
}

// TestShown checks that the slowest ranks stay if there are too many.
func TestShown(t *testing.T) {
	var all []rankTimes
	for i := range 1000 {
		all = append(all, rankTimes{Rank: i, Median: float64(i % 100)})
	}
	some := slowestRanks(all, 10)
	if len(some) != 10 || some[0].Rank != 99 || some[9].Rank != 999 {
		t.Errorf("%+v", some)
	}
	if b := newRankChart(all); len(b.Bars) != maxBars || b.Cut != 1000-maxBars {
		t.Errorf("%d bars, %d left out", len(b.Bars), b.Cut)
	}
}

// FuzzFigures checks that any metrics produce a report, and that all its coordinates are
// numbers.
func FuzzFigures(f *testing.F) {
	f.Add([]byte(`{"kind":"train","step":1,"loss":1e308,"samples_per_s":-1e308,"comm_ms":1,"comm_hidden":-1e308,"compute_ms":[1e308,"Inf",0],"slowest_rank":99}` + "\n"))
	f.Add([]byte(`{"kind":"train","step":-9223372036854775808,"loss":0}` + "\n" + `{"kind":"train","step":9223372036854775807,"loss":5e-324}` + "\n"))
	f.Add([]byte(`{"kind":"eval","step":0,"loss":"NaN","accuracy":"-Inf"}` + "\n" + `{"kind":"skip"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		figures, err := parseMetrics(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		r := Run{Metrics: figures, Status: watch.Status{Attempts: make([]outcome.Attempt, 2)}, Made: time.Unix(0, 0), Network: &rundir.Network{Hosts: make([]rundir.NetworkHost, 2)}}
		if err := r.HTML(io.Discard); err != nil {
			t.Fatal(err)
		}
		p := page{Run: &r}
		p.addCharts()
		p.addRanks()
		number := func(s string) {
			if v, err := strconv.ParseFloat(s, 64); err != nil || !finite(v) {
				t.Fatalf("a coordinate is %q", s)
			}
		}
		for _, c := range p.Charts {
			for _, l := range c.Lines {
				for _, d := range l.Dots {
					number(d.X)
					number(d.Y)
				}
			}
			for _, tick := range append(c.X, c.Y...) {
				number(tick.At)
			}
		}
		if p.Bars != nil {
			for _, b := range p.Bars.Bars {
				number(b.Y)
				number(b.H)
			}
		}
	})
}

// TestLargeMetricsAreRejected checks that a report does not read metrics of another user without a limit.
func TestLargeMetricsAreRejected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, maxMetrics+1)); err != nil {
		t.Fatal(err)
	}
	if _, err := readMetrics(path); err == nil || !strings.Contains(err.Error(), "1024 MiB") {
		t.Errorf("got %v, want the limit", err)
	}
}

// TestFiguresAreThinned checks that the memory for records is limited, because another user
// may own the file.
func TestFiguresAreThinned(t *testing.T) {
	tests := []struct {
		name  string
		lines int
		more  string // additional keys of each record
	}{
		{"many", maxWeight + 12, ""},
		{"odd", maxWeight + 13, ""},
		{"large", 40, `,"compute_ms":[` + strings.Repeat("1,", 1<<19) + `1]`},
		{"large and small", 4, `,"compute_ms":[` + strings.Repeat("1,", 1<<19) + `1],"compute_ms":[1]`},
		{"few", 10, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var text bytes.Buffer
			for i := range tt.lines {
				fmt.Fprintf(&text, "{\"kind\":\"train\",\"step\":%d%s}\n", i, tt.more)
			}
			figures, err := parseMetrics(&text)
			if err != nil {
				t.Fatal(err)
			}
			total := 0
			for i := range figures.Train {
				total += weight(&figures.Train[i])
				if times := figures.Train[i].ComputeMillis; cap(times) > 2*len(times)+100 {
					t.Fatalf("got memory for %d times, want %d", cap(times), len(times))
				}
			}
			first, last := figures.Train[0].Step, figures.Train[len(figures.Train)-1].Step
			if total > 2*maxWeight || first != 0 || last != tt.lines-1 || tt.more == "" && len(figures.Train) < min(tt.lines, maxWeight/2) {
				t.Errorf("%d records of weight %d, from step %d to %d", len(figures.Train), total, first, last)
			}
		})
	}
}

// TestResumeSteps checks the steps at which attempts resumed, also if another user has written attempts
// that are not in order.
func TestResumeSteps(t *testing.T) {
	p := page{Run: &Run{}}
	for i := range 5 {
		p.Run.Metrics.Train = append(p.Run.Metrics.Train, metrics.Record{Step: 10 * (i + 1), Time: noon.Add(time.Duration(i) * time.Minute)})
	}
	for _, minutes := range []float64{0, 9, 2.5, 2.6, -1, 0.5} {
		p.Run.Status.Attempts = append(p.Run.Status.Attempts, outcome.Attempt{Began: noon.Add(time.Duration(minutes * float64(time.Minute)))})
	}
	if got, want := p.resumeSteps(), []int{10, 30, 50}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
