package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/usage"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// programRun returns a run of a user's program that failed on its second node.
func programRun(t *testing.T) Run {
	t.Helper()
	dir, err := rundir.Create(filepath.Join(t.TempDir(), "run"))
	check(t, err)
	put := func(path, text string) { check(t, os.WriteFile(path, []byte(text), 0o600)) }
	put(dir.Spec(), "name = \"mine\"\n[command]\nargv = [\"python3\", \"train.py\", \"a b\", \"<i>\"]\n")
	check(t, dir.WriteRecord(rundir.Record{Run: "00ff", Name: "mine", Base: "/home/ada", Created: noon, Version: "v1.2.3"}))
	rank := 3
	for _, e := range []rundir.AttemptEvent{
		{Event: rundir.AttemptBegan, Time: noon, Attempt: 1, Hosts: "n[1-2]", Ranks: 4},
		{Event: rundir.AttemptEnded, Time: noon.Add(time.Hour), Attempt: 1, Exit: 1, Cause: "rank 3 on n2: python3 ended with exit code 1", Rank: &rank, Host: "n2"},
	} {
		check(t, dir.AppendAttempt(e))
	}
	failure, err := json.Marshal(outcome.Failure{Time: noon.Add(time.Hour), Attempt: 1, Exit: 1,
		First:     &rendezvous.Failure{Rank: 3, Host: "n2", State: rendezvous.Failed, Reason: "rank 3 on n2: python3 ended with exit code 1"},
		Ranks:     []rendezvous.RankStatus{{Rank: 3, Host: "n2", State: rendezvous.Failed, Exit: 1, Error: "python3 ended with exit code 1"}},
		Finding:   &outcome.Finding{Name: "gpu out of memory", Cause: "the memory is too small <c>", Hint: "use a smaller batch"},
		LastLines: []string{"Traceback (most recent call last):", "  File \"train.py\", line 7", "    loss.backward()"}})
	check(t, err)
	put(dir.Failure(), string(failure))
	check(t, dir.WriteEnd(rundir.End{Exit: 1, Time: noon.Add(time.Hour)}))
	put(dir.Metrics(), `{"kind":"train","step":10,"steps":100,"loss":2,"step_ms":250}`+"\n"+`{"kind":"train","step":20,"steps":100,"loss":1,"step_ms":250}`+"\n")
	for node := range 2 {
		n := usage.Node{Node: node, Host: fmt.Sprintf("n%d", node+1), Attempt: 1, Samples: 9, Time: noon}
		for i := range 2 {
			busy, peak := 0.9-0.4*float64(node+i), 1.0
			n.Ranks = append(n.Ranks, usage.Rank{Rank: 2*node + i, Cores: 8, CPUMean: 2, CPUPeak: 7.5, MemoryMean: 1 << 30, MemoryPeak: int64(node+i+1) << 30, Processes: 5})
			n.GPUs = append(n.GPUs, usage.GPU{Index: i, Name: "NVIDIA H100 <b>", Samples: 3, BusyMean: &busy, BusyPeak: &peak, MemoryPeak: 60 << 30, MemoryTotal: 80 << 30})
		}
		text, err := json.Marshal(n)
		check(t, err)
		check(t, dir.WriteUsage(1, node, text))
	}
	check(t, dir.WriteComponents(1, 1, []rundir.ComponentState{{Name: "server", Attempt: 1, Node: 1, Host: "n2<i>", Phase: rundir.ComponentStopped, Restarts: 2}}))
	r := Collect(dir)
	r.SetStatus(nil, noon.Add(2*time.Hour))
	return r
}

// TestProgramPage checks the report of a user's program: the failure comes first, and there are the
// command line, the last lines with their indentation, and the measurements of ranks and GPUs.
func TestProgramPage(t *testing.T) {
	page := html(t, programRun(t))
	rest := page
	for _, want := range []string{
		"python3 train.py &#34;a b&#34; &lt;i&gt;",
		"4 May 2026, 12:00 to 13:00 UTC, on n[1-2]",
		"20 of 100", "<dt>ms per step (median)</dt><dd>250</dd>",
		"component server", "stopped on n2&lt;i&gt;, 2 restarts",
		"The last failure:",
		"Diagnosis: gpu out of memory.", "Meaning: the memory is too small &lt;c&gt;.", "Fix: use a smaller batch.",
		"The last lines of rank 3 on n2, which failed first:",
		"\n    loss.backward()",
		`<th scope="col">exit</th><th scope="col">message</th>`,
		"<h2>Training</h2>", "<figcaption>Loss</figcaption>", "<figcaption>Step time (ms)</figcaption>",
		"<h2>CPU, memory, and GPUs of the ranks</h2>",
		"On average, a rank used 2 cores. Rank 3 used most memory: 3 GiB. Mostly idle: GPU 1 on n2 (10%).",
		"2 of 8", "width:25%", "2 GiB", "width:67%",
		"90%", "60 GiB of 80 GiB", "NVIDIA H100 &lt;b&gt;",
		"<h2>Attempts and restarts</h2>",
	} {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Fatalf("%q is missing, or not in its place:\n%s", want, page)
		}
		rest = after
	}
	for _, other := range []string{"<th scope=\"col\">job</th>", "<th scope=\"col\">step</th><th scope=\"col\">at</th>"} {
		if strings.Contains(page, other) {
			t.Errorf("the page has an empty column: %s", other)
		}
	}
}
