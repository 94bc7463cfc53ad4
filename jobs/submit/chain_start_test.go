package submit

import (
	"errors"
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// idsOf returns the job IDs of submissions.
func idsOf(list []rundir.Submission) (ids []string) {
	for _, s := range list {
		ids = append(ids, s.JobID)
	}
	return ids
}

// exitOf returns the exit code that err has, or -1.
func exitOf(err error) int {
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return -1
}

// TestStartChained checks which job of a chain continues the run, after each end of the job before it.
func TestStartChained(t *testing.T) {
	for _, tt := range []struct {
		name     string
		end      *rundir.End // of job 1
		id       string
		previous string
		done     bool
		exit     int // of the error
		last     string
		chain    []string
	}{
		{name: "the first job", id: "1", last: "1", chain: []string{"2", "3"}},
		{name: "a job that is not in the chain", id: "9", last: "1", chain: []string{"2", "3"}},
		{name: "stopped", end: &rundir.End{JobID: "1", Exit: exitcode.Stopped, Stopped: true}, id: "2", previous: "1", last: "2", chain: []string{"3"}},
		{name: "killed", id: "2", previous: "1", last: "2", chain: []string{"3"}},
		{name: "lost a node", end: &rundir.End{JobID: "1", Exit: exitcode.Lost}, id: "2", previous: "1", last: "2", chain: []string{"3"}},
		{name: "after a canceled job", id: "3", previous: "1", last: "3"},
		{name: "finished", end: &rundir.End{JobID: "1"}, id: "2", previous: "1", done: true, last: "1", chain: []string{"2", "3"}},
		{name: "failed", end: &rundir.End{JobID: "1", Exit: 7}, id: "2", exit: 7, last: "1", chain: []string{"2", "3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			req := c.request(job("chained", "", ""))
			req.Chain = 3
			dir := c.submitted(req).Dir
			record := c.record(dir)
			record.Submissions[0].JobID = "1"
			for i := range record.Chain {
				record.Chain[i].JobID, record.Chain[i].Follows = string(rune('2'+i)), string(rune('1'+i))
			}
			if err := dir.WriteRecord(record); err != nil {
				t.Fatal(err)
			}
			if tt.end != nil {
				if err := dir.WriteEnd(*tt.end); err != nil {
					t.Fatal(err)
				}
			}
			previous, done, err := StartChained(t.Context(), dir, dir.Path, tt.id)
			if (err != nil) != (tt.exit != 0) || err != nil && exitOf(err) != tt.exit {
				t.Fatalf("got %v with exit code %d, want %d", err, exitOf(err), tt.exit)
			}
			if previous != tt.previous || done != tt.done {
				t.Errorf("got %q, %v, want %q, %v", previous, done, tt.previous, tt.done)
			}
			record = c.record(dir)
			if chain := idsOf(record.Chain); record.LastJob() != tt.last || !slices.Equal(chain, tt.chain) {
				t.Errorf("the last job is %s, the chain %q; want %s, %q", record.LastJob(), chain, tt.last, tt.chain)
			}
		})
	}
}

// TestStartChainedBeforeItsRecord checks that a job of a chain starts although the submission of the
// chain was interrupted before the record had the job.
func TestStartChainedBeforeItsRecord(t *testing.T) {
	c := newCluster(t)
	interrupt := func(dir rundir.Dir, elements []int) {
		t.Helper()
		record, next := c.record(dir), rundir.NewSubmission()
		next.Follows, next.Elements = record.LastJob(), elements
		record.Pending = &next
		if err := dir.WriteRecord(record); err != nil {
			t.Fatal(err)
		}
	}
	single := c.submitted(c.request(job("chained", "", ""))).Dir
	interrupt(single, nil)
	sweep := c.submitted(c.request(swept)).Dir
	interrupt(sweep, []int{0, 1})
	for _, tt := range []struct {
		name           string
		dir, submitted rundir.Dir
		id, previous   string
	}{
		{name: "single run", dir: single, submitted: single, id: "103", previous: "101"},
		{name: "trial", dir: sweep.Element(1), submitted: sweep, id: "104_1", previous: "102_1"},
		{name: "trial that is not in the array", dir: sweep.Element(2), submitted: sweep, id: "104_2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			previous, done, err := StartChained(t.Context(), tt.dir, tt.submitted.Path, tt.id)
			if err != nil || done || previous != tt.previous {
				t.Fatalf("got %q, %v, %v, want %q", previous, done, err, tt.previous)
			}
			record := c.record(tt.dir)
			if last := record.LastJob(); tt.previous != "" && (last != tt.id || record.Pending != nil) || tt.previous == "" && last == tt.id {
				t.Errorf("the last job is %s, pending is %v", last, record.Pending)
			}
		})
	}
}
