package slurm

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFindByComment(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{"squeue": record + show(
		"112|N/A|N/A|N/A|ddpbatch 7f3a\n"+ // submitted twice: both are named
			"12  |12 |N/A |0 |ddpbatch 7f3a   \n"+
			"13|13|N/A|0|ddpbatch 7f3a and more\n"+
			"14|14|N/A|0|(null)\n"+
			"15|15|N/A|0|a|ddpbatch 7f3a\n"+
			"20|18|2|0|ddpbatch 7f3a\n"+ // an array: once, by its own id
			"18|18|3-9%2|0|ddpbatch 7f3a\n"+
			"30|N/A|N/A|30|ddpbatch 7f3a\n"+ // a heterogeneous job: by its leader
			"31|N/A|N/A|30|ddpbatch 7f3a\n"+
			"40|N/A\n")})
	ids, err := fake.FindByComment(t.Context(), "ddpbatch 7f3a")
	if want := []string{"12", "18", "30", "112"}; err != nil || !slices.Equal(ids, want) {
		t.Errorf("found %q, %v; want %q", ids, err, want)
	}
	if ids, err := fake.FindByComment(t.Context(), "(null"); err != nil || len(ids) > 0 {
		t.Errorf("found %q, %v", ids, err)
	}
	want := []string{"squeue", "--noheader", "--states=all", "--me", "--Format=" + commentFormat}
	if got := fake.calls(t); !slices.Equal(got[0], want) || len(got) != 2 {
		t.Errorf("called %q", got)
	}
	for _, comment := range []string{"", " x", "x ", "a\nb", "a'b", `a"b`, "ä"} {
		if ids, err := fake.FindByComment(t.Context(), comment); err == nil {
			t.Errorf("looked for %q: %q", comment, ids)
		}
		if comment == "" {
			continue
		}
		if id, err := fake.Submit(t.Context(), SubmitRequest{Script: "/job", Comment: comment}); err == nil || Uncertain(err) {
			t.Errorf("submitted with %q: %q, %v", comment, id, err)
		}
	}
	down := newFakeSlurm(t, map[string]string{"squeue": downSqueue})
	if ids, err := down.FindByComment(t.Context(), "x"); err == nil || ids != nil {
		t.Errorf("found %q without a controller", ids)
	}
}

func TestFindByScript(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{"squeue": record + show(
		"112|N/A|N/A|N/A|ddpbatch:7f|/runs/a/job.sbatch\n"+
			"12  |12 |N/A |0 |(null)   |/runs/a/job.sbatch \n"+
			"13|13|N/A|0|(null)|/runs/b/job.sbatch\n"+
			"14|14|N/A|0|x|/runs/a/job.sbatch|/runs/a/job.sbatch\n"+
			"15|15|N/A|0|(null)|(null)\n"+
			"20|18|2|0|ddpbatch:8a|/runs/a/job.sbatch\n"+ // an array: once, by its own id
			"18|18|3-9%2|0|ddpbatch:8a|/runs/a/job.sbatch\n"+
			"40|N/A\n")})
	found, err := fake.FindByScript(t.Context(), "/runs/a/job.sbatch")
	want := []SubmittedJob{{"12", "(null)"}, {"18", "ddpbatch:8a"}, {"112", "ddpbatch:7f"}}
	if err != nil || !slices.Equal(found, want) {
		t.Errorf("found %v, %v; want %v", found, err, want)
	}
	down := newFakeSlurm(t, map[string]string{"squeue": downSqueue})
	if found, err := down.FindByScript(t.Context(), "/x"); err == nil || found != nil {
		t.Errorf("found %v without a controller", found)
	}
}

func TestDependencyRefused(t *testing.T) {
	tests := []struct {
		in   Dependency
		want string
	}{
		{Dependency{"afterlife", []string{"1"}}, `dependency "afterlife": there are after, afterany, afterok and afternotok`},
		{Dependency{AfterOK, nil}, "dependency afterok: on no job"},
		{Dependency{AfterOK, []string{"1", "2,afterany:3"}}, `dependency afterok: job "2,afterany:3": an id is a number`},
	}
	for _, tt := range tests {
		_, err := Client{}.Submit(t.Context(), SubmitRequest{Script: "/job", Dependencies: []Dependency{tt.in}})
		if err == nil || !strings.Contains(err.Error(), tt.want) || Uncertain(err) {
			t.Errorf("%+v: %v, want %s", tt.in, err, tt.want)
		}
	}
}

func TestUncertain(t *testing.T) {
	tests := []struct {
		name, sbatch string
		want         bool
	}{
		{"a bad account", `echo 'sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified' >&2; exit 1`, false},
		{"an error code of the controller that we do not know", `echo 'sbatch: error: Batch job submission failed: Burst Buffer request invalid' >&2; exit 1`, false},
		{"an option that sbatch does not know", `echo "sbatch: unrecognized option '--gpsu=1'" >&2; exit 255`, false},
		{"memory", `echo 'sbatch: error: Memory specification can not be satisfied' >&2; exit 1`, false},
		{"socket time-out", `echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1`, true},
		{"no controller", `echo 'sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)' >&2; exit 1`, true},
		{"zero bytes", `echo 'sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received' >&2; exit 1`, true},
		{"refused in a second try", `echo 'sbatch: error: Socket timed out on send/recv operation' >&2; echo 'sbatch: error: Batch job submission failed: Invalid qos specification' >&2; exit 1`, true},
		{"no configuration", `echo 'sbatch: fatal: Could not establish a configuration source' >&2; exit 1`, false},
		{"failed without a word", `exit 1`, true},
		{"failed with words that we do not know", `echo 'sbatch: lua: oops' >&2; exit 1`, true},
		{"killed", `kill -9 $$`, true},
		{"killed while it was refusing", `echo 'sbatch: error: Invalid qos specification' >&2; kill -9 $$`, true},
		{"no id", `exit 0`, true},
		{"an id and a failure", `echo 12; exit 1`, true},
		{"hangs", `/bin/sleep 60`, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fake := newFakeSlurm(t, map[string]string{"sbatch": tt.sbatch})
			ctx := t.Context()
			if tt.name == "hangs" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
				defer cancel()
			}
			_, err := fake.Submit(ctx, SubmitRequest{Script: "/job"})
			if err == nil || Uncertain(err) != tt.want {
				t.Errorf("%v: uncertain %v, want %v", err, !tt.want, tt.want)
			}
		})
	}
	_, missing := Client{}.Submit(t.Context(), SubmitRequest{Script: "/job"})
	_, relative := Client{}.Submit(t.Context(), SubmitRequest{Script: "job"})
	for _, err := range []error{nil, missing, relative, errors.New("x"), fmt.Errorf("y: %w", exec.ErrNotFound)} {
		if Uncertain(err) {
			t.Errorf("%v is uncertain", err)
		}
	}
	if !Uncertain(fmt.Errorf("interrupted: %w", context.Canceled)) {
		t.Error("a cancelled call is certain")
	}
}

// What Slurm says, as its programs write it, and the part of the hint that
// names what to change.
func TestHints(t *testing.T) {
	const failed = "sbatch: error: Batch job submission failed: "
	tests := []struct{ said, want string }{
		{failed + "Invalid account or account/partition combination specified", "[slurm] account"},
		{failed + "Invalid partition name specified", "[slurm] partition"},
		{"sbatch: error: invalid partition specified: gpux", "[slurm] partition"},
		{failed + "No partition specified or system default partition", "[slurm] partition"},
		{failed + "User's group not permitted to use this partition", "[slurm] partition"},
		{failed + "Required partition not available (inactive or drain)", "sinfo --summarize"},
		{failed + "Invalid qos specification", "[slurm] qos"},
		{"sbatch: error: QOSMaxSubmitJobPerUserLimit\n" + failed + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "as many jobs as the QOS allows"},
		{"sbatch: error: AssocMaxSubmitJobLimit\n" + failed + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "as many jobs as your account allows"},
		{"sbatch: error: QOSMaxNodePerUserLimit\n" + failed + "Job violates accounting/QOS policy", "[slurm] nodes"},
		{"sbatch: error: QOSMaxGRESPerUser\n" + failed + "Job violates accounting/QOS policy", "gpus_per_node"},
		{"sbatch: error: QOSMaxWallDurationPerJobLimit\n" + failed + "Job violates accounting/QOS policy", "[slurm] time"},
		{failed + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "sacctmgr show qos"},
		{failed + "Requested node configuration is not available", "constraint"},
		{failed + "More processors requested than permitted", "cpus_per_task"},
		{failed + "Requested time limit is invalid (missing or exceeds some limit)", "[slurm] time"},
		{"allocation failure: PartitionTimeLimit", "[slurm] time"},
		{failed + "Node count specification invalid", "[slurm] nodes"},
		{"sbatch: error: Memory specification can not be satisfied", "[slurm] mem"},
		{failed + "Memory required by task is not available", "[slurm] mem"},
		{failed + "Invalid generic resource (gres) specification", "gpus_per_node"},
		{failed + "Invalid Trackable RESource (TRES) specification", "gpus_per_node"},
		{failed + "Invalid feature specification", "[slurm] constraint"},
		{failed + "Requested reservation is invalid", "[slurm] reservation"},
		{failed + "Access denied to requested reservation", "[slurm] reservation"},
		{failed + "Requested reservation not usable now", "[slurm] reservation"},
		{failed + "Invalid job array specification", "MaxArraySize"},
		{failed + "Job dependency problem", "waits for"},
		{failed + "Access/permission denied", "account"},
		{"sbatch: unrecognized option '--gpsu=1'", "sbatch --help"},
		{"sbatch: error: Invalid --time specification", "[slurm] section"},
		{"sbatch: error: Batch script contains DOS line breaks (\\r\\n)", "lines of the script"},
		{"sbatch: error: Unable to open file /runs/job.sbatch", "run directory"},
		{"slurm_load_jobs error: Unable to contact slurm controller (connect failure)", "scontrol ping"},
		{failed + "Socket timed out on send/recv operation", "squeue --me"},
		{failed + "Zero Bytes were transmitted or received", "squeue --me"},
		{"sbatch: error: Munge encode failed: Failed to access \"/run/munge/munge.socket.2\"", "munge"},
		{"sbatch: fatal: Could not establish a configuration source", "SLURM_CONF"},
		{"sbatch: lua: oops", ""},
	}
	for _, tt := range tests {
		err := error(&CommandError{Argv: []string{"sbatch"}, Err: errors.New("exit status 1"), Stderr: tt.said})
		hint := hintOf(err)
		if !strings.Contains(hint, tt.want) || (hint == "") != (tt.want == "") || strings.Contains(hint, "\n") {
			t.Errorf("%s\nhint %q, want %q in it", tt.said, hint, tt.want)
		}
	}
	asking := &CommandError{Argv: []string{"squeue"}, Err: errors.New("exit status 1"), Stderr: "Socket timed out on send/recv operation"}
	if hint := asking.Hint(); !strings.Contains(hint, "scontrol ping") || strings.Contains(hint, "submit") {
		t.Errorf("a hint for squeue: %q", hint)
	}
	asking.Argv = []string{"sbatch", "--test-only"}
	if hint := asking.Hint(); !strings.Contains(hint, "scontrol ping") {
		t.Errorf("a hint for --test-only: %q", hint)
	}
	late := &CommandError{Argv: []string{"sbatch"}, Err: context.DeadlineExceeded, Stderr: "Unable to contact slurm controller"}
	if hint := late.Hint(); hint != mayBeSubmitted {
		t.Errorf("a hint for a late sbatch: %q", hint)
	}
	for i, a := range slices.Concat(refusals, silences, unsent) {
		if a.says != strings.ToLower(a.says) || i < len(refusals) && a.hint == "" {
			t.Errorf("%q is never found, or has no hint", a.says)
		}
	}
	// An entry that an earlier one covers is never reached.
	for i, a := range refusals {
		if b, _ := find(refusals[:i], a.says); b.says != "" {
			t.Errorf("%q never counts, because of %q", a.says, b.says)
		}
	}
}
