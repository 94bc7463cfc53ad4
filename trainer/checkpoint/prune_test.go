package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestPrune checks which checkpoints remain after the save of step. All checkpoints are valid
// except the damaged ones.
func TestPrune(t *testing.T) {
	for what, c := range map[string]struct {
		steps, damaged []int
		step, keep     int
		left           []int
	}{
		"the oldest go":                           {[]int{1, 2, 3, 4}, nil, 4, 2, []int{3, 4}},
		"one is kept":                             {[]int{1, 2}, nil, 2, 1, []int{2}},
		"fewer than kept":                         {[]int{1, 2}, nil, 2, 3, []int{1, 2}},
		"below one that was passed over":          {[]int{1, 2, 9}, []int{9}, 2, 1, []int{2, 9}},
		"below some that were passed over":        {[]int{1, 2, 3, 7, 8, 9}, []int{7, 8, 9}, 3, 2, []int{2, 3, 7, 8, 9}},
		"below a good one":                        {[]int{1, 2, 9}, nil, 2, 1, []int{2, 9}},
		"a damaged one counts for nothing":        {[]int{1, 2, 3, 4}, []int{3}, 4, 2, []int{2, 3, 4}},
		"all but the saved are damaged":           {[]int{1, 2, 3, 4}, []int{1, 2, 3}, 4, 2, []int{1, 2, 3, 4}},
		"a damaged one older than those kept":     {[]int{1, 2, 3, 4}, []int{1}, 4, 2, []int{3, 4}},
		"passed over, and damaged before it, too": {[]int{1, 2, 3, 9}, []int{2, 9}, 3, 2, []int{1, 2, 3, 9}},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			for _, s := range c.steps {
				save(t, dir, s)
			}
			for _, s := range c.damaged {
				damage(t, dir, s)
			}
			if err := Prune(t.Context(), dir, "run", c.step, Retention{Newest: c.keep}, map[int]bool{}); err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, s := range c.left {
				want = append(want, name(s))
			}
			if got := names(t, dir); !reflect.DeepEqual(got, want) {
				t.Errorf("left %v, want %v", got, want)
			}
		})
	}
}

// TestPruneVerifiesOnce checks that Prune does not verify a checkpoint twice.
func TestPruneVerifiesOnce(t *testing.T) {
	dir, good := t.TempDir(), map[int]bool{}
	for step := 1; step <= 3; step++ {
		save(t, dir, step)
	}
	if err := Prune(t.Context(), dir, "run", 3, Retention{Newest: 2}, good); err != nil {
		t.Fatal(err)
	}
	if want := map[int]bool{2: true, 3: true}; !reflect.DeepEqual(good, want) {
		t.Fatalf("known %v, want %v", good, want)
	}
	save(t, dir, 4)
	damage(t, dir, 3)
	if err := Prune(t.Context(), dir, "run", 4, Retention{Newest: 2}, good); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !reflect.DeepEqual(got, []string{"step-00000003", "step-00000004"}) {
		t.Errorf("left %v", got)
	}
}

func damage(t *testing.T, dir string, step int) {
	t.Helper()
	file := filepath.Join(dir, name(step), ModelFile)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, flip(content, len(content)-1, 0x20), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPruneKeeps checks that Prune permanently keeps a checkpoint every n steps or epochs, and the
// best one.
func TestPruneKeeps(t *testing.T) {
	loss := []Number{9, 5, 3, 4, 3, 6, 7, 8} // after steps 0, 10, ...
	for name, tt := range map[string]struct {
		keep    Retention
		damaged []int
		left    []int
	}{
		"every 30 steps":             {Retention{Newest: 2, Steps: 30}, nil, []int{0, 30, 60, 70}},
		"every other epoch":          {Retention{Newest: 1, Epochs: 2}, nil, []int{0, 40, 70}},
		"the lowest":                 {Retention{Newest: 1, Best: "eval_loss"}, nil, []int{20, 70}},
		"the highest":                {Retention{Newest: 1, Best: "eval_loss", Highest: true}, nil, []int{0, 70}},
		"the next best is equal":     {Retention{Newest: 1, Best: "eval_loss"}, []int{20}, []int{40, 70}},
		"the best is new":            {Retention{Newest: 4, Best: "eval_loss"}, []int{20}, []int{40, 50, 60, 70}},
		"no such metric":             {Retention{Newest: 1, Best: "accuracy"}, nil, []int{70}},
		"the best is not finite yet": {Retention{Newest: 1, Best: "nan"}, nil, []int{10, 70}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for i, l := range loss {
				m := &Manifest{Run: "r", Step: 10 * i, Epoch: i / 2, Consumed: 8 * (i % 2), Metrics: map[string]Number{"eval_loss": l}}
				if i == 0 {
					m.Metrics["nan"] = Number(math.NaN())
				} else if i == 1 {
					m.Metrics["nan"] = 1
				}
				if _, err := Save(dir, m, Files{ModelFile: nil}); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range tt.damaged {
				damage(t, dir, s)
			}
			if err := Prune(t.Context(), dir, "r", 70, tt.keep, map[int]bool{}); err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, s := range tt.left {
				want = append(want, fmt.Sprintf("step-%08d", s))
			}
			if got := names(t, dir); !reflect.DeepEqual(got, want) {
				t.Errorf("left %v, want %v", got, want)
			}
		})
	}
}

// TestBestSaved checks which checkpoints count for the best value so far.
func TestBestSaved(t *testing.T) {
	dir := t.TempDir()
	for _, m := range []*Manifest{
		{Run: "run", Step: 1, Metrics: map[string]Number{"loss": 5}},
		{Run: "run", Step: 2, Metrics: map[string]Number{"loss": 4}},
		{Run: "another", Step: 3, Metrics: map[string]Number{"loss": 3}},
		{Run: "run", Step: 4, Metrics: map[string]Number{"loss": 2}}, // others can write to it
		{Run: "run", Step: 5, Metrics: map[string]Number{"loss": 1}},
	} {
		path, err := Save(dir, m, Files{ModelFile: nil})
		if err == nil && m.Step == 4 {
			err = os.Chmod(filepath.Join(path, manifestName), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name   string
		dir    string
		metric string
		step   int
		want   float64
	}{
		{name: "all steps", dir: dir, metric: "loss", step: 5, want: 1},
		{name: "later step, different run, and unsafe file", dir: dir, metric: "loss", step: 4, want: 4},
		{name: "no step", dir: dir, metric: "loss", step: 0, want: math.NaN()},
		{name: "no such metric", dir: dir, metric: "accuracy", step: 5, want: math.NaN()},
		{name: "no metric", dir: dir, step: 5, want: math.NaN()},
		{name: "no directory", dir: filepath.Join(dir, "missing"), metric: "loss", want: math.NaN()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Retention{Best: tt.metric}.BestSaved(tt.dir, "run", tt.step)
			if err != nil || got != tt.want && !(math.IsNaN(got) && math.IsNaN(tt.want)) {
				t.Errorf("got %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

// TestPruneOfWrongStep checks the error for a manifest of a different step.
func TestPruneOfWrongStep(t *testing.T) {
	dir := t.TempDir()
	path := save(t, dir, 1)
	if err := os.Rename(path, filepath.Join(dir, name(2))); err != nil {
		t.Fatal(err)
	}
	err := Prune(t.Context(), dir, "run", 2, Retention{Newest: 1}, map[int]bool{})
	if err == nil || strings.Contains(err.Error(), "belongs to run") || !strings.Contains(err.Error(), "is for step 1") {
		t.Errorf("got %v, want an error about the step", err)
	}
}

// TestPruneKeepsOtherRuns checks that Prune removes no checkpoint of another run. Its directory
// can replace the one that was saved into.
func TestPruneKeepsOtherRuns(t *testing.T) {
	dir := t.TempDir()
	for step := 1; step <= 4; step++ {
		save(t, dir, step)
	}
	if err := Prune(t.Context(), dir, "another", 4, Retention{Newest: 1}, map[int]bool{1: true, 2: true, 3: true}); err == nil {
		t.Error("pruned the directory of another run")
	}
	m, files := state(5)
	m.Run = "another"
	if _, err := Save(dir, m, files); err != nil {
		t.Fatal(err)
	}
	if err := Prune(t.Context(), dir, "another", 5, Retention{Newest: 1}, map[int]bool{1: true, 2: true, 3: true, 4: true}); err != nil {
		t.Error(err)
	}
	if got := names(t, dir); len(got) != 5 {
		t.Errorf("left %v, want all", got)
	}
}

// TestSaveDoesNotReplaceAnotherRun checks that Save does not replace a checkpoint of another run.
func TestSaveDoesNotReplaceAnotherRun(t *testing.T) {
	dir := t.TempDir()
	path := save(t, dir, 1)
	m, files := state(1)
	m.Run = "another"
	if _, err := Save(dir, m, files); err == nil {
		t.Error("replaced the checkpoint of another run")
	}
	if e, ok, err := Newest(dir); err != nil || !ok || e.Manifest == nil || e.Manifest.Run != "run" {
		t.Errorf("the checkpoint in %q is now %+v, %v", path, e, err)
	}
}

// TestPruneStopsWithContext checks that Prune stops when its context ends. It may have to read
// terabytes to verify a checkpoint.
func TestPruneStopsWithContext(t *testing.T) {
	dir, good := t.TempDir(), map[int]bool{}
	for step := 1; step <= 3; step++ {
		save(t, dir, step)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the attempt ends")
	cancel(why)
	if err := Prune(ctx, dir, "run", 3, Retention{Newest: 2}, good); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	if _, known := good[2]; known || len(names(t, dir)) != 3 {
		t.Errorf("known %v, left %v", good, names(t, dir))
	}
}
