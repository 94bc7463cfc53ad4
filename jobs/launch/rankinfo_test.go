package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launchers"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// TestDecideHosts checks that ranks determine which of them share a host, if their launcher
// does not number the hosts.
func TestDecideHosts(t *testing.T) {
	reports := func(of ...hostReport) (out [][]byte) {
		for _, r := range of {
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, b)
		}
		return out
	}
	unknown := func(host string) hostReport { return hostReport{host, launchers.Unknown, launchers.Unknown} }
	got, err := decideHosts(reports(unknown("b"), unknown("a"), unknown("b"), hostReport{"c", 1, 2}, hostReport{"c", 0, 2}))
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, g := range got {
		var p hostPosition
		if err := json.Unmarshal(g, &p); err != nil {
			t.Fatal(err)
		}
		told = append(told, fmt.Sprint(p))
	}
	if s := strings.Join(told, " "); s != "{0 2 0 3} {0 1 1 3} {1 2 0 3} {1 2 2 3} {0 2 2 3}" {
		t.Errorf("got %s", s)
	}
	for want, bad := range map[string][][]byte{
		"the launcher reports 2 ranks on the host of rank 0, but 1 ranks are on a": reports(hostReport{"a", 0, 2}),
		"ranks 0 and 1 are both local rank 1 on a":                                 reports(hostReport{"a", 1, 2}, hostReport{"a", 1, 2}),
		"decode host report of rank 0":                                             {[]byte("x")},
	} {
		if _, err := decideHosts(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestDetectRankAmongLaunchers checks that another launcher inside a Slurm step counts only if
// its values agree with Slurm's, or if the user selects it by name.
func TestDetectRankAmongLaunchers(t *testing.T) {
	step, err := os.ReadFile("../../slurm/testdata/environ/step-rank3.env")
	if err != nil {
		t.Fatal(err)
	}
	srun := strings.Split(strings.TrimSpace(string(step)), "\n") // rank 3 of 4
	mpi := func(rank, size string) []string {
		return []string{"OMPI_COMM_WORLD_RANK=" + rank, "OMPI_COMM_WORLD_SIZE=" + size}
	}
	for name, c := range map[string]struct {
		env, launcher, want string
	}{
		"agree":            {"3 4", "", "slurm 3/4"},
		"disagree":         {"0 1", "", "contradict each other: openmpi: rank 0 of 1 ranks; slurm: rank 3 of 4 ranks"},
		"by name":          {"0 1", "openmpi", "openmpi 0/1"},
		"slurm by name":    {"0 1", "slurm", "slurm 3/4"},
		"absent, by name":  {"0 1", "torchrun", "the variables of launcher torchrun are not set"},
		"what is not told": {"", "", "slurm 3/4"},
	} {
		env := srun
		if rank, size, ok := strings.Cut(c.env, " "); ok {
			env = append(env[:len(env):len(env)], mpi(rank, size)...)
		} else {
			env = append(env[:len(env):len(env)], "PMI_RANK=3", "PMI_SIZE=4") // srun --mpi=pmi2
		}
		p, err := DetectRank(lookupIn(env), c.launcher)
		got := fmt.Sprintf("%s %d/%d", map[bool]string{true: "slurm", false: p.Launcher}[p.InSlurm()], p.Rank, p.WorldSize)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
	// Ranks that ddpbatch's launcher started use srun's variables, even if other variables
	// leaked into their environment.
	p, err := DetectRank(lookupIn(append(append(srun[:len(srun):len(srun)], mpi("0", "1")...), LauncherVariable+"=127.0.0.1:1")), "")
	var ambiguous *launchers.AmbiguousError
	if err != nil || !p.InSlurm() || errors.As(err, &ambiguous) {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestRanksHere checks how many ranks this process starts, which depends on the launcher and the
// job.
func TestRanksHere(t *testing.T) {
	job := &jobs.Job{Slurm: jobs.Slurm{TasksPerNode: 4, GPUsPerNode: 4}, Command: &jobs.Command{Launcher: jobs.LauncherRank}}
	host := RankInfo{PerHost: true, GPUs: launchers.Unknown}
	if n, err := RanksToStart(host, job); n != 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := RanksToStart(RankInfo{}, job); n != 0 || err != nil {
		t.Errorf("a rank: %d, %v", n, err)
	}
	host.GPUs, host.Launcher = 2, "sagemaker"
	if _, err := RanksToStart(host, job); err == nil || !strings.Contains(err.Error(), "sagemaker reports 2") {
		t.Errorf("too few GPUs: %v", err)
	}
	job.Command.Launcher = jobs.LauncherTorchrun // torchrun starts the ranks itself
	if n, err := RanksToStart(host, job); n != 0 || err != nil {
		t.Errorf("torchrun: %d, %v", n, err)
	}
}

// TestDetectRank checks the rank in the environment of a local run, and the errors for invalid
// variables.
func TestDetectRank(t *testing.T) {
	env := func(kv ...string) func(string) (string, bool) {
		return lookupIn(kv)
	}
	p, err := DetectRank(env(envLocalRank+"=1", envLocalSize+"=3"), "")
	if err != nil || p.Rank != 1 || p.WorldSize != 3 || p.LocalRank != 1 || p.Nodes != 1 || p.InSlurm() {
		t.Errorf("local: %+v, %v", p, err)
	}
	for want, e := range map[string][]string{
		`"x" is not an integer of at least 0`: {envLocalRank + "=x", envLocalSize + "=3"},
		`"" is not an integer of at least 1`:  {envLocalRank + "=0"},
		"is 3, but there are 3 ranks":         {envLocalRank + "=3", envLocalSize + "=3"},
	} {
		if _, err := DetectRank(env(e...), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", e, err, want)
		}
	}
	var none *slurm.NoStepError
	if _, err := DetectRank(env(), ""); !errors.As(err, &none) {
		t.Errorf("nothing set: %v", err)
	}
}
