package tests

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/doctor"
	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// TestDoctor checks that doctor finds harmful Slurm settings on a real cluster, and that it checks
// each node when it runs in a job.
func TestDoctor(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 2, SlurmConf: []string{"RequeueExit=3", "PreemptMode=CANCEL"}})
	s.write("in-job.sh", "#!/bin/sh\n"+binary+" doctor --in-job --json --dir . >found.json\n")
	out, err := s.Command(t.Context(), "sbatch", "--parsable", "--nodes=2", "--chdir="+s.home, s.home+"/in-job.sh").Output()
	if err != nil {
		t.Fatal(err)
	}
	id, _, _ := strings.Cut(strings.TrimSpace(string(out)), ";")

	login := s.ddpbatch("doctor", "--json")
	mustContain(t, login.stderr, "checks failed")
	check := func(text string, want map[string]doctor.Level) map[string]doctor.Finding {
		t.Helper()
		var found []doctor.Finding
		if err := json.Unmarshal([]byte(text), &found); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		byPart := map[string]doctor.Finding{}
		for _, f := range found {
			byPart[f.Part] = f
		}
		for part, verdict := range want {
			if f := byPart[part]; f.Level != verdict {
				t.Errorf("%s: %+v, want %s\n%s", part, f, verdict, text)
			}
		}
		return byPart
	}
	check(login.stdout, map[string]doctor.Level{"slurm RequeueExit": doctor.Fail, "slurm PreemptMode": doctor.Warn, "slurm ProctrackType": doctor.Warn,
		"slurm TaskPlugin": doctor.Warn, "slurm KillWait": doctor.Warn, "slurm SLURM_VERSION": doctor.OK, "files lock": doctor.OK})

	s.ends(id, "FAILED") // doctor exits with an error because of RequeueExit
	byPart := check(s.file("found.json"), map[string]doctor.Level{"slurm RequeueExit": doctor.Fail, "network": doctor.OK, "nccl alone": doctor.Warn,
		"kernel": doctor.OK, "files on all nodes": doctor.OK, "files rename": doctor.OK, "clocks of the nodes": doctor.OK})
	if f := byPart["network"]; !strings.Contains(f.Detail, "hsn0") {
		t.Errorf("%+v", f)
	}
	if f := byPart["nccl alone"]; !strings.Contains(f.Detail, "selects eth0; ddpbatch selects hsn0") || f.Hosts != "" {
		t.Errorf("%+v", f)
	}
}
