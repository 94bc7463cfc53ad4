package symptoms

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// contextLine is not a symptom, but symptoms of NCCL's networks require such a line.
const contextLine = "n1:1:1 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.14.0"

// TestEachSymptomIsKnown checks that each symptom is found in its own sample, and not as a
// different symptom.
func TestEachSymptomIsKnown(t *testing.T) {
	names := map[string]bool{}
	for _, s := range table {
		if names[s.Name] || s.Cause == "" || s.Hint == "" || s.From == "" {
			t.Errorf("%q: twice, or something is missing", s.Name)
		}
		names[s.Name] = true
		if words := requiredWords(s.expression); minLength(words) < 3 {
			t.Errorf("%q: %q would be found everywhere: the pattern needs a longer text", s.Name, words)
		}
		found, lines, err := Scan(strings.NewReader(contextLine + "\n" + s.sample + "\nend"))
		if err != nil || lines != 3 || len(found) != 1 || found[0].Name != s.Name || !slices.Equal(found[0].Lines, []int{2}) {
			t.Errorf("%q in %q: found %+v in %d lines, %v", s.Name, s.sample, found, lines, err)
		}
	}
	if len(table) < 40 {
		t.Errorf("only %d symptoms", len(table))
	}
}

var update = flag.Bool("update", false, "write the symptoms into docs/doctor.md")

// TestDocument checks that the document lists all symptoms of the table.
func TestDocument(t *testing.T) {
	const path, begin, end = "../../../docs/doctor.md", "symptoms -update -->\n", "<!-- end -->"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	old, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatal("docs/doctor.md has no place for the symptoms")
	}
	var rows strings.Builder
	rows.WriteString("| Failure | Message from | Meaning |\n|---|---|---|\n")
	for _, s := range table {
		rows.WriteString("| " + s.Name + " | " + s.From + " | " + s.Cause + " |\n")
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+rows.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if old != rows.String() {
		t.Error("docs/doctor.md is not what the table says: run go test ./jobs/doctor/symptoms -update")
	}
}

// TestNothingIsFoundWhereNothingIs checks that no symptoms are found in the log of a
// successful run.
func TestNothingIsFoundWhereNothingIs(t *testing.T) {
	const log = `6 ranks on 3 nodes; network 10.20.0.0/24 (hsn0 on n1): 10.20.0.0/24 reaches all 3 hosts
training from the start, 3 epochs
saved step 0 to /home/ada/runs/fashion/checkpoints/step-00000000 (5ms)
epoch 1/3  step 200/939  loss 0.5077  52,706 samples/s  3s left
n1:1234:1234 [0] NCCL INFO Bootstrap : Using hsn0:10.20.0.1<0>
n1:1234:1234 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal implementation
finished: 3 epochs, 939 steps
`
	found, lines, err := Scan(strings.NewReader(log))
	if err != nil || len(found) != 0 || lines != 7 {
		t.Errorf("%+v, %d lines, %v", found, lines, err)
	}
}

// TestSlowNetworkNeedsARequest checks that TCP counts as a symptom only in a log that mentions a
// faster network, before or after it.
func TestSlowNetworkNeedsARequest(t *testing.T) {
	const socket = "n1:1:2 [0] NCCL INFO Using network Socket\n"
	for _, c := range []struct {
		name, log string
		found     bool
	}{
		{"Ethernet", "n1:1:1 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so\n" + socket, false},
		{"EFA", "n1:1:1 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 32 nics)\n" + socket, true},
		{"EFA in use", "n1:1:1 [0] NCCL INFO NET/OFI Selected provider is efa\nn1:1:1 [0] NCCL INFO Using network Libfabric\n", false},
		{"EFA in the environment", socket + "export FI_PROVIDER=efa\n", true},
		{"NCCL_NET", "n1:1:1 [0] NCCL INFO NCCL_NET set by environment to AWS Libfabric\n" + socket, true},
		{"EFA plugin that is not found", "n1:1:1 [0] NCCL INFO NCCL_NET_PLUGIN set by environment to /opt/aws/lib/libnccl-net-ofi.so\nn1:1:1 [0] NCCL INFO NET/Plugin: Could not find: /opt/aws/lib/libnccl-net-ofi.so\n" + socket, true},
		{"no plugin", "n1:1:1 [0] NCCL INFO NCCL_NET_PLUGIN set by environment to none\n" + socket, false},
		{"TCPXO", "n1:1:1 [0] NCCL INFO NCCL_FASTRAK_CTRL_DEV set by environment to enp0s12\n" + socket, true},
		{"TCPXO in use", "n1:1:1 [0] NCCL INFO NET/FasTrak : Initializing\nn1:1:1 [0] NCCL INFO Using network FasTrak\n", false},
		{"gIB", socket + "n2:1:1 [0] NCCL INFO NET/gIB : Initializing gIB v1.0.5\n", true},
		{"other mention", "launch with aws-ofi-nccl-less image\n", false},
	} {
		found, _, err := Scan(strings.NewReader(c.log))
		if err != nil || (len(found) == 1 && found[0].Name == "slow network in use") != c.found || len(found) > 1 {
			t.Errorf("%s: got %+v, %v", c.name, found, err)
		}
	}
}

// TestCausesComeFirst checks that consequences come after their cause, even if they are
// printed earlier and more often.
func TestCausesComeFirst(t *testing.T) {
	log := strings.Repeat("[E ProcessGroupNCCL.cpp:475] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8)\n", 9) +
		"srun: error: n1: task 3: Exited with exit code 1\n" +
		"slurmstepd: error: Detected 1 oom_kill event in StepId=123.0.\x1b[31m\n"
	found, _, err := Scan(strings.NewReader(log))
	if err != nil || len(found) != 3 {
		t.Fatalf("%+v, %v", found, err)
	}
	if f := found[0]; f.Name != "out of memory" || f.IsConsequence() || f.Lines[0] != 11 || strings.ContainsRune(f.Text, '\x1b') {
		t.Errorf("first %+v", f)
	}
	if f := found[1]; f.Name != "NCCL timed out" || !f.IsConsequence() || f.Count != 9 || !slices.Equal(f.Lines, []int{1, 2, 3, 4, 5}) {
		t.Errorf("second %+v", f)
	}
}

// TestMerge checks that symptoms in the output of a rank are added once, and that causes come before
// consequences.
func TestMerge(t *testing.T) {
	rank := 3
	found := func(name string, severity severity, rank *int) Found {
		return Found{Symptom: Symptom{Name: name, severity: severity}, Lines: []int{7, 9}, Count: 4, Rank: rank}
	}
	log := []Found{found("a", likely, nil), found("b", consequence, nil), found("c", aftermath, nil)}
	var got []string
	for _, f := range Merge(log, []Found{found("b", consequence, &rank), found("d", cause, &rank)}) {
		got = append(got, f.Name+": "+f.Where())
	}
	want := []string{"a: lines 7, 9 and 2 more", "d: lines 7, 9 and 2 more of the output of rank 3", "b: lines 7, 9 and 2 more", "c: lines 7, 9 and 2 more"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLongLines checks that a line that is longer than the buffer counts as one line.
func TestLongLines(t *testing.T) {
	long := io.MultiReader(strings.NewReader(strings.Repeat("x", 3*maxLine)+" CUDA out of memory\n"), strings.NewReader("CUDA out of memory"))
	found, lines, err := Scan(long)
	if err != nil || lines != 2 || len(found) != 1 || found[0].Lines[0] != 2 {
		t.Errorf("%+v, %d lines, %v", found, lines, err)
	}
}

// FuzzLook checks that findings in any log have valid counts and line numbers.
func FuzzLook(f *testing.F) {
	for _, s := range table {
		f.Add([]byte(s.sample))
	}
	f.Fuzz(func(t *testing.T, log []byte) {
		found, lines, err := Scan(bytes.NewReader(log))
		if err != nil || lines > bytes.Count(log, []byte("\n"))+1 {
			t.Fatalf("%d lines, %v", lines, err)
		}
		for _, f := range found {
			if f.Count < len(f.Lines) || len(f.Lines) == 0 || f.Lines[0] < 1 || slices.Max(f.Lines) > lines || strings.ContainsAny(f.Text, "\x1b\n\r") {
				t.Fatalf("%+v of %d lines", f, lines)
			}
		}
	})
}

// TestWordSearchMissesNoLine checks that the search for words finds every line that a pattern
// matches. Its result must equal the result of trying every pattern on every line.
func TestWordSearchMissesNoLine(t *testing.T) {
	for _, s := range table {
		for _, line := range []string{s.sample, strings.ToUpper(s.sample), strings.ToLower(s.sample), s.Name, strings.Repeat("x", 300) + s.sample + s.sample} {
			want := -1
			for i := range table {
				if table[i].pattern().MatchString(line) {
					want = i
					break
				}
			}
			found, _, err := Scan(strings.NewReader(contextLine + "\n" + line))
			switch {
			case err != nil:
				t.Fatal(err)
			case want < 0 && len(found) > 0, want >= 0 && (len(found) != 1 || found[0].Name != table[want].Name):
				t.Errorf("%q: found %+v, want row %d", line, found, want)
			}
		}
	}
}

// TestAutomatonFindsEveryWord checks that the automaton finds words that overlap, or are a
// prefix or a suffix of other words, and nothing else.
func TestAutomatonFindsEveryWord(t *testing.T) {
	rows := [][]string{{"she", "hers"}, {"he"}, nil, {"is"}, {"his"}}
	for line, want := range map[string][]int{
		"":             {2},
		"ushers":       {0, 1, 2},
		"HIS":          {2, 3, 4},
		"h e s h i x":  {2},
		"shis":         {2, 3, 4},
		"\xff\x00hE\n": {1, 2},
	} {
		found := newAutomaton(rows).find([]byte(line))
		var got []int
		for row := range rows {
			if found.contains(row) {
				got = append(got, row)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q has words of rows %v, want %v", line, got, want)
		}
	}
}

// TestOrdinaryLinesCostLittle checks that a line without known words needs no regular
// expression and no allocation, because logs have millions of such lines.
func TestOrdinaryLinesCostLittle(t *testing.T) {
	line := []byte("rank 0: step 12345 loss 0.123456 lr 0.001\n")
	var s scan
	if n := testing.AllocsPerRun(100, func() { s.add(line, 1) }); n != 0 {
		t.Errorf("%v allocations for a line", n)
	}
	if rows := scanner().find(line); !rows.isEmpty() {
		t.Errorf("%q is tried against patterns: %b", line, rows)
	}
}

// TestPreemptedJobNeedsNoKey checks the fix for a preempted job. Slurm or ddpbatch requeues such a
// job regardless of [restart], so the fix names no key of this table.
func TestPreemptedJobNeedsNoKey(t *testing.T) {
	found, _, err := Scan(strings.NewReader("slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***"))
	if err != nil || len(found) != 1 || found[0].Name != "preempted" {
		t.Fatalf("%+v, %v", found, err)
	}
	if hint := found[0].Hint; strings.Contains(hint, "restart") || !strings.Contains(hint, "requeues a preempted job") {
		t.Errorf("got the fix %q", hint)
	}
}

// TestXids checks that Xids are classified as in NVIDIA's catalog. Only Xids of broken
// hardware are a cause, and the hints for errors of a program do not mention an administrator.
func TestXids(t *testing.T) {
	for symptom, numbers := range map[string][]int{
		"gpu program error":          {13, 31, 126},
		"contained gpu memory error": {94},
		"gpu has failed":             {48, 64, 74, 79, 95, 119, 140},
		"error of the gpu driver":    {8, 32, 69, 137, 154},
		"":                           {43, 45, 63, 92, 121},
	} {
		for _, n := range numbers {
			line := fmt.Sprintf("[  12.5] NVRM: Xid (PCI:0000:3b:00): %d, pid=1234, name=python3", n)
			found, _, err := Scan(strings.NewReader(line))
			if symptom == "" {
				if err != nil || len(found) != 0 {
					t.Errorf("Xid %d: %+v, %v; want nothing", n, found, err)
				}
				continue
			}
			if err != nil || len(found) != 1 || found[0].Name != symptom {
				t.Fatalf("Xid %d: %+v, %v; want %q", n, found, err, symptom)
			}
			broken := symptom == "gpu has failed"
			advises := found[0].Cause + found[0].Hint
			if drains := strings.Contains(advises, "drain") || strings.Contains(advises, "ExcNodeList"); drains != broken || (found[0].severity == cause) != broken {
				t.Errorf("Xid %d: %q, a cause: %t", n, advises, found[0].severity == cause)
			}
		}
	}
}

// TestTooManyThreads checks that the process limit is recognized in messages of Go's runtime,
// OpenMP, and Python.
func TestTooManyThreads(t *testing.T) {
	for _, line := range []string{
		"runtime/cgo: pthread_create failed: Resource temporarily unavailable",
		"runtime: failed to create new OS thread (have 5 already; errno=11)",
		"runtime.newosproc(0xc000080008)",
		"libgomp: Thread creation failed: Resource temporarily unavailable",
		"fork/exec /usr/bin/srun: resource temporarily unavailable",
		"BlockingIOError: [Errno 11] Resource temporarily unavailable",
		"RuntimeError: can't start new thread",
	} {
		if found, _, err := Scan(strings.NewReader(line)); err != nil || len(found) != 1 || found[0].Name != "no more threads" {
			t.Errorf("%q: %+v, %v", line, found, err)
		}
	}
}
