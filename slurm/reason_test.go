package slurm

import (
	"os"
	"strings"
	"testing"
)

// Every reason that a real Slurm (22.05.8) has for a job to wait is explained.
func TestEveryReasonIsExplained(t *testing.T) {
	text, err := os.ReadFile("testdata/reasons-22.05.txt")
	if err != nil {
		t.Fatal(err)
	}
	reasons := strings.Fields(string(text))
	if len(reasons) < 150 {
		t.Fatalf("only %d reasons", len(reasons))
	}
	for _, r := range reasons {
		w, ok := ExplainPending(r)
		if !ok || w.Why == "" || w.Stuck && w.Advice == "" {
			t.Errorf("%s: %+v, %v", r, w, ok)
		}
	}
}

func TestExplainPending(t *testing.T) {
	for _, tt := range []struct {
		reason string
		why    string // "" is not known
		stuck  bool
	}{
		{"Priority", "other jobs come first", false},
		{"QOSMaxGRESPerUser", "your jobs together have reached the limit of the QOS on GPUs or other devices", false},
		{"QOSMaxGRESPerJob", "it asks for more GPUs or other devices than the QOS allows a job", true},
		{"AssocGrpGRES", "all jobs together have reached the limit of your account on GPUs or other devices", false},
		{"AssocGrpCPUMinutesLimit", "your account has used up its minutes of CPUs", false},
		{"AssocGrpCPURunMinutesLimit", "the jobs that run have taken all that your account may use of CPUs at a time, counted in minutes", false},
		{"AssocMaxCpuMinutesPerJobLimit", "it asks for more CPUs, times its hours, than your account allows a job", true},
		{"QOSMinCpuNotSatisfied", "it asks for fewer CPUs than the QOS wants of a job", true},
		{"MaxMemoryPerAccount", "the jobs of your account together have reached the limit of the QOS on memory", false},
		{"ReqNodeNotAvail, UnavailableNodes:n[3-4]", "nodes that it needs are down, drained or reserved, perhaps for maintenance that begins before it would end (n[3-4])", false},
		{"ReqNodeNotAvail, UnavailableNodes:", "nodes that it needs are down, drained or reserved, perhaps for maintenance that begins before it would end", false},
		{"Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "nodes that it needs are down, drained or reserved for more important partitions", false},
		{"launch failed requeued held", "it could not be started on its nodes, and is held", true},
		{"SomethingNew", "", false},
		{"MaxSomethingNew", "", false},
		{"", "", false},
	} {
		w, ok := ExplainPending(tt.reason)
		if ok != (tt.why != "") || w.Why != tt.why || w.Stuck != tt.stuck {
			t.Errorf("%q: %+v, %v, want %q, stuck %v", tt.reason, w, ok, tt.why, tt.stuck)
		}
	}
}
