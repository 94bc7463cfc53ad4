package predict

import (
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// TestThreads checks the number of cores of the ranks with the fewest cores.
func TestThreads(t *testing.T) {
	const profile = "title = \"x\"\nsources = [\"https://x.org\"]\nread = \"2026-11-21\"\n[[resource]]\ncpus_per_node = 64\n"
	site, err := sites.Parse("x", "x.toml", []byte(profile))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, slurm string
		want        int
	}{
		{name: "default", want: 1},
		{name: "number", slurm: "cpus_per_task = 6\n", want: 6},
		{name: "all", slurm: "tasks_per_node = 4\ncpus_per_task = \"all\"\n", want: 16},
		{name: "all with more ranks than cores", slurm: "tasks_per_node = 100\ncpus_per_task = \"all\"\n", want: 1},
		{name: "all in each group", slurm: "[[slurm.group]]\ncpus_per_task = \"all\"\n[[slurm.group]]\ntasks_per_node = 2\ncpus_per_task = \"all\"\n", want: 32},
		{name: "all in one group", slurm: "[[slurm.group]]\ncpus_per_task = 8\n[[slurm.group]]\ncpus_per_task = \"all\"\n", want: 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job, err := jobs.Parse("job.toml", []byte("name = \"x\"\n[command]\nargv = [\"x\"]\n[slurm]\n"+tt.slurm))
			if err != nil {
				t.Fatal(err)
			}
			p := &predictor{Options: Options{Job: job, Site: site}}
			if got := p.threads(); got != tt.want || len(p.notes) > 0 {
				t.Errorf("got %d threads and notes %q, want %d", got, p.notes, tt.want)
			}
		})
	}
}
