package slurm

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// TestHint checks that each hint about a message of Slurm's programs contains what to change.
func TestHint(t *testing.T) {
	const failed = "sbatch: error: Batch job submission failed: "
	for _, tt := range []struct{ message, want string }{
		{failed + "Invalid account or account/partition combination specified", "slurm.account"},
		{failed + "Invalid partition name specified", "slurm.partition"},
		{"sbatch: error: invalid partition specified: gpux", "slurm.partition"},
		{failed + "No partition specified or system default partition", "slurm.partition"},
		{failed + "User's group not permitted to use this partition", "slurm.partition"},
		{failed + "Required partition not available (inactive or drain)", "sinfo --summarize"},
		{failed + "Invalid qos specification", "slurm.qos"},
		{"sbatch: error: QOSMaxSubmitJobPerUserLimit\n" + failed + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "different slurm.qos"},
		{"sbatch: error: AssocMaxSubmitJobLimit\n" + failed + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "different slurm.account"},
		{"sbatch: error: QOSMaxNodePerUserLimit\n" + failed + "Job violates accounting/QOS policy", "lower slurm.nodes"},
		{"sbatch: error: QOSMaxGRESPerUser\n" + failed + "Job violates accounting/QOS policy", "lower slurm.gpus_per_node"},
		{"sbatch: error: QOSMaxWallDurationPerJobLimit\n" + failed + "Job violates accounting/QOS policy", "lower slurm.time"},
		{"sbatch: error: QOSMinCpuNotSatisfied\n" + failed + "Job violates accounting/QOS policy", "raise slurm.cpus_per_task"},
		{"sbatch: error: QOSGrpSomethingNew\n" + failed + "Job violates accounting/QOS policy", "sacctmgr show qos"},
		{failed + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "sacctmgr show qos"},
		{failed + "Requested node configuration is not available", "slurm.constraint"},
		{failed + "More processors requested than permitted", "slurm.cpus_per_task"},
		{failed + "Requested time limit is invalid (missing or exceeds some limit)", "slurm.time"},
		{"allocation failure: PartitionTimeLimit", "slurm.time"},
		{"allocation failure: PartitionNodeLimit", "slurm.nodes"},
		{failed + "Node count specification invalid", "slurm.nodes"},
		{"sbatch: error: Memory specification can not be satisfied", "slurm.mem"},
		{failed + "Memory required by task is not available", "slurm.mem"},
		{failed + "Invalid generic resource (gres) specification", "slurm.gpus_per_node"},
		{failed + "Invalid Trackable RESource (TRES) specification", "slurm.gpus_per_node"},
		{failed + "Invalid feature specification", "slurm.constraint"},
		{failed + "Requested reservation is invalid", "slurm.reservation"},
		{failed + "Access denied to requested reservation", "slurm.reservation"},
		{failed + "Requested reservation not usable now", "slurm.reservation"},
		{failed + "Invalid job array specification", "MaxArraySize"},
		{failed + "Job dependency problem", "dependency"},
		{failed + "Access/permission denied", "slurm.account"},
		{"sbatch: unrecognized option '--gpsu=1'", "sbatch --help"},
		{"sbatch: error: Invalid --time specification", "[slurm]"},
		{"sbatch: error: Batch script contains DOS line breaks (\\r\\n)", "lines of the script"},
		{"sbatch: error: Unable to open file /runs/job.sbatch", "run directory"},
		{"slurm_load_jobs error: Unable to contact slurm controller (connect failure)", "scontrol ping"},
		{failed + "Socket timed out on send/recv operation", "squeue --me"},
		{failed + "Zero Bytes were transmitted or received", "squeue --me"},
		{"sbatch: error: Munge encode failed: Failed to access \"/run/munge/munge.socket.2\"", "munge"},
		{"sbatch: fatal: Could not establish a configuration source", "SLURM_CONF"},
		{"sbatch: lua: oops", ""},
	} {
		err := &CommandError{Argv: []string{"sbatch"}, Err: errors.New("exit status 1"), Stderr: tt.message}
		got := hints.Of(err)
		if !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") || strings.Contains(got, "\n") {
			t.Errorf("%s: got hint %q, want %q", tt.message, got, tt.want)
		}
	}
}

// TestHintWithoutReply checks that a lost reply has a different hint if the program may have
// submitted a job.
func TestHintWithoutReply(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  CommandError
		want string
	}{
		{name: "squeue", err: CommandError{Argv: []string{"squeue"}, Err: errors.New("x"), Stderr: "Socket timed out on send/recv operation"}, want: hintController},
		{name: "sbatch --test-only", err: CommandError{Argv: []string{"sbatch", "--test-only"}, Err: errors.New("x"), Stderr: "Socket timed out"}, want: hintController},
		{name: "sbatch", err: CommandError{Argv: []string{"sbatch"}, Err: errors.New("x"), Stderr: "Socket timed out"}, want: hintCheckQueue},
		{name: "sbatch timed out", err: CommandError{Argv: []string{"sbatch"}, Err: context.DeadlineExceeded, Stderr: "Unable to contact slurm controller"}, want: hintCheckQueue},
		{name: "squeue timed out", err: CommandError{Argv: []string{"squeue"}, Err: context.DeadlineExceeded}, want: hintController},
	} {
		if got := tt.err.Hint(); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestAdviceIsReachable checks that no entry of the tables hides a later one.
func TestAdviceIsReachable(t *testing.T) {
	for i, a := range rejections {
		if a.hint == "" {
			t.Errorf("%q has no hint", a.text)
		}
		if b, ok := findAdvice(rejections[:i], a.text); ok {
			t.Errorf("%q is never found, because of %q", a.text, b.text)
		}
	}
	for _, a := range slices.Concat(rejections, noReplyErrors) {
		if a.text != strings.ToLower(a.text) {
			t.Errorf("%q is never found, because it is not in lower case", a.text)
		}
	}
}

// TestExplainPendingExplainsEveryReason checks the pending reasons of Slurm 22.05.8.
func TestExplainPendingExplainsEveryReason(t *testing.T) {
	text, err := os.ReadFile("testdata/reasons-22.05.txt")
	if err != nil {
		t.Fatal(err)
	}
	reasons := strings.Fields(string(text))
	if len(reasons) < 150 {
		t.Fatalf("got %d reasons, want at least 150", len(reasons))
	}
	for _, name := range reasons {
		r, ok := ExplainPending("7", name)
		if !ok || r.Text == "" || r.Stuck && r.Hint == "" || strings.Contains(r.Hint, "JOBID") {
			t.Errorf("%s: got %+v, %v", name, r, ok)
		}
	}
}

// TestExplainPending checks the explanation and the hint for each reason of a pending job.
func TestExplainPending(t *testing.T) {
	for _, tt := range []struct {
		reason string
		text   []string // parts of the text; nil if the reason is unknown
		hint   string   // part of the hint; empty for none
		stuck  bool
	}{
		{reason: "Priority", text: []string{"other jobs"}, hint: "sprio --jobs=18_3"},
		{reason: "JobHeldUser", text: []string{"held"}, hint: "scontrol release 18_3", stuck: true},
		{reason: "QOSMaxGRESPerUser", text: []string{"your jobs", "limit of the QOS", "GPUs"}, hint: "sacctmgr show qos"},
		{reason: "QOSMaxGRESPerJob", text: []string{"requests more GPUs", "the QOS allows per job"}, hint: "slurm.gpus_per_node", stuck: true},
		{reason: "AssocGrpGRES", text: []string{"all jobs", "limit of your account", "GPUs"}, hint: "sacctmgr show associations"},
		{reason: "AssocGrpCPUMinutesLimit", text: []string{"your account has used up", "CPUs"}, hint: "slurm.account"},
		{reason: "AssocGrpCPURunMinutesLimit", text: []string{"running jobs use all minutes of CPUs", "your account"}, hint: "slurm.time"},
		{reason: "AssocMaxCpuMinutesPerJobLimit", text: []string{"requests more minutes of CPUs", "your account allows per job"}, hint: "slurm.time", stuck: true},
		{reason: "QOSMinCpuNotSatisfied", text: []string{"minimum", "the QOS", "CPUs"}, hint: "raise slurm.cpus_per_task", stuck: true},
		{reason: "MaxMemoryPerAccount", text: []string{"jobs of your account", "limit of the QOS", "memory"}, hint: "slurm.mem"},
		{reason: "ReqNodeNotAvail, UnavailableNodes:n[3-4]", text: []string{"required nodes", "(n[3-4])"}, hint: "sinfo"},
		{reason: "ReqNodeNotAvail, UnavailableNodes:", text: []string{"required nodes"}, hint: "sinfo"},
		{reason: "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", text: []string{"higher priority"}, hint: "sinfo"},
		{reason: "launch failed requeued held", text: []string{"could not start"}, hint: "scontrol release 18_3", stuck: true},
		{reason: "BeginTime", text: []string{"begin time"}},
		{reason: "SomethingNew"},
		{reason: "MaxSomethingNew"},
		{reason: "QOSSomethingNew"},
		{reason: ""},
	} {
		r, ok := ExplainPending("18_3", tt.reason)
		if ok != (tt.text != nil) || r.Stuck != tt.stuck || !strings.Contains(r.Hint, tt.hint) || (r.Hint == "") != (tt.hint == "") {
			t.Errorf("%q: got %+v, %v", tt.reason, r, ok)
		}
		for _, want := range tt.text {
			if !strings.Contains(r.Text, want) {
				t.Errorf("%q: got text %q, want %q in it", tt.reason, r.Text, want)
			}
		}
		if strings.Contains(r.Text, "()") {
			t.Errorf("%q: got text %q", tt.reason, r.Text)
		}
	}
}
