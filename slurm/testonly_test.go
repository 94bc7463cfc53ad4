package slurm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTestOnly(t *testing.T) {
	f := newFakeSlurm(t, map[string]string{
		"sbatch": `/bin/cat >"$FAKE/script"; echo "sbatch: Job 7 to start at 2026-11-21T10:00:00 using 4 processors on nodes n[1-2] in partition batch" >&2`,
	})
	answer, err := f.TestOnly(t.Context(), []byte("#!/bin/sh\n"), t.TempDir())
	if err != nil || answer.Nodes != "n[1-2]" || !strings.HasPrefix(answer.Raw, "Job 7 to start at") {
		t.Errorf("%+v, %v", answer, err)
	}
	if got, err := os.ReadFile(filepath.Join(f.dir, "script")); err != nil || string(got) != "#!/bin/sh\n" {
		t.Errorf("sbatch read %q, %v", got, err)
	}
	f = newFakeSlurm(t, map[string]string{"sbatch": `echo "sbatch: error: invalid partition specified: gpu" >&2; exit 1`})
	_, err = f.TestOnly(t.Context(), nil, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "invalid partition specified: gpu") || !strings.Contains(hintOf(err), "[slurm] partition") {
		t.Errorf("got %v, hint %q", err, hintOf(err))
	}
}

func TestParseForecast(t *testing.T) {
	now := time.Date(2026, 11, 20, 8, 0, 0, 0, time.Local)
	ten := time.Date(2026, 11, 21, 10, 0, 0, 0, time.Local)
	tests := []struct {
		name, said string
		want       Forecast // without Raw
		raw        string
	}{
		{"22.05", "sbatch: Job 7 to start at 2026-11-21T10:00:00 using 4 processors on nodes n[1-2] in partition batch\n",
			Forecast{Start: ten, Processors: 4, Nodes: "n[1-2]", Partition: "batch"},
			"Job 7 to start at 2026-11-21T10:00:00 using 4 processors on nodes n[1-2] in partition batch"},
		{"before 17.11", "sbatch: Job 7 to start at 2026-11-21T10:00:00 using 4 processors on n[1-2]\n",
			Forecast{Start: ten, Processors: 4, Nodes: "n[1-2]"}, "Job 7 to start at 2026-11-21T10:00:00 using 4 processors on n[1-2]"},
		{"federation", "sbatch: Job 7 to start at 2026-11-21T10:00:00 on cluster west using 4 processors on nodes n1 in partition p\n",
			Forecast{Start: ten, Processors: 4, Nodes: "n1", Partition: "p", Cluster: "west"},
			"Job 7 to start at 2026-11-21T10:00:00 on cluster west using 4 processors on nodes n1 in partition p"},
		{"a warning before it", "sbatch: warning: no --time\nsbatch: Job 7 to start at 2026-11-21T10:00:00 using 4 processors on nodes n1 in partition p\n",
			Forecast{Start: ten, Processors: 4, Nodes: "n1", Partition: "p"},
			"warning: no --time\nJob 7 to start at 2026-11-21T10:00:00 using 4 processors on nodes n1 in partition p"},
		{"heterogeneous", "sbatch: Job 7 to start at 2026-11-21T10:00:00 using 4 processors on nodes n1 in partition p\n" +
			"sbatch: Job 8 to start at 2026-11-21T09:00:00 using 2 processors on nodes g1 in partition gpu\n",
			Forecast{Start: ten, Processors: 6, Nodes: "n1,g1", Partition: "gpu"},
			"Job 7 to start at 2026-11-21T10:00:00 using 4 processors on nodes n1 in partition p\n" +
				"Job 8 to start at 2026-11-21T09:00:00 using 2 processors on nodes g1 in partition gpu"},
		{"the year 3047", "sbatch: Job 7 to start at 3047-11-21T10:00:00 using 4 processors on nodes n1 in partition p\n",
			Forecast{Processors: 4, Nodes: "n1", Partition: "p"}, "Job 7 to start at 3047-11-21T10:00:00 using 4 processors on nodes n1 in partition p"},
		{"one of two senseless", "sbatch: Job 7 to start at 3047-11-21T10:00:00 using 4 processors on nodes n1 in partition p\n" +
			"sbatch: Job 8 to start at 2026-11-21T10:00:00 using 4 processors on nodes n2 in partition p\n",
			Forecast{Processors: 8, Nodes: "n1,n2", Partition: "p"}, "Job 7 to start at 3047-11-21T10:00:00 using 4 processors on nodes n1 in partition p\n" +
				"Job 8 to start at 2026-11-21T10:00:00 using 4 processors on nodes n2 in partition p"},
		{"no time", "sbatch: Job 7 to start at Unknown using 4 processors on nodes n1 in partition p\n",
			Forecast{Processors: 4, Nodes: "n1", Partition: "p"}, "Job 7 to start at Unknown using 4 processors on nodes n1 in partition p"},
		{"something else", "all well\n", Forecast{}, "all well"},
		{"nothing", "", Forecast{}, ""},
	}
	for _, tt := range tests {
		got := parseForecast(tt.said, now)
		tt.want.Raw = tt.raw
		if !got.Start.Equal(tt.want.Start) {
			t.Errorf("%s: starts at %s, want %s", tt.name, got.Start, tt.want.Start)
		}
		got.Start = tt.want.Start
		if got != tt.want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", tt.name, got, tt.want)
		}
	}
}

func FuzzParseForecast(f *testing.F) {
	f.Add("sbatch: Job 7 to start at 2026-11-21T10:00:00 using 4 processors on nodes n[1-2] in partition batch\n")
	f.Add("Job 7 to start at 9999-12-31T23:59:59 using 99999999999999999999 processors on n")
	now := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, said string) {
		got := parseForecast(said, now)
		if got.Processors < 0 || got.Start.Sub(now) > maxForecast || strings.ContainsAny(got.Raw, "\x1b\r") {
			t.Fatalf("%q gives %+v", said, got)
		}
	})
}
