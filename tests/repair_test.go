package tests

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// TestRepairedRunKnowsItsQueuedJob checks that a repaired record contains the pending job: ddpbatch
// does not submit the job a second time, and the job runs when Slurm starts it.
func TestRepairedRunKnowsItsQueuedJob(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 2})
	s.write("job.toml", strings.Replace(small, "[train]", "[slurm]\ntime = \"00:10:00\"\n[train]", 1))
	s.partition("down")
	id := s.submit("job.toml")
	record := filepath.Join(s.run("small"), "record.json")
	var before, after struct {
		Submissions []struct{ ID string }
	}
	read := func(v any) {
		t.Helper()
		b, err := os.ReadFile(record)
		if err == nil {
			err = json.Unmarshal(b, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	read(&before)
	if err := os.Truncate(record, 0); err != nil {
		t.Fatal(err)
	}
	if o := s.ddpbatch("repair", "small"); o.code != 0 || !strings.Contains(o.stdout, "last job "+id) {
		t.Fatal(o)
	}
	read(&after)
	if len(after.Submissions) != 1 || after.Submissions[0].ID != before.Submissions[0].ID {
		t.Errorf("submissions are %v, want %v", after.Submissions, before.Submissions)
	}
	if o := s.ddpbatch("submit", "job.toml"); o.code == 0 || !strings.Contains(o.stderr, "in use by job "+id) {
		t.Errorf("a second submission: %v", o)
	}
	s.partition("up")
	s.completed(id)
	weights(t, s.run("small"))
}

// partition changes the state of the cluster's partitions.
func (s site) partition(state string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	out := finish(s.t, s.Command(ctx, "sinfo", "--noheader", "--format=%R"))
	for _, name := range strings.Fields(out.stdout) {
		if o := finish(s.t, s.Command(ctx, "scontrol", "update", "PartitionName="+name, "State="+state)); o.code != 0 {
			s.t.Fatal(o)
		}
	}
}
