package usage

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/process"
)

// TestParseStatm checks the memory of a process, and texts that are not from statm.
func TestParseStatm(t *testing.T) {
	if resident, shared, err := parseStatm([]byte("900 200 50 1 0 100 0\n")); resident != 200 || shared != 50 || err != nil {
		t.Errorf("memory is %d and %d, %v, want 200 and 50", resident, shared, err)
	}
	for _, text := range []string{"", "1 2", "1 x 2", "1 2 x"} {
		if _, _, err := parseStatm([]byte(text)); err == nil {
			t.Errorf("%q: want an error", text)
		}
	}
}

// ticks returns a process with its start time and its CPU time.
func ticks(start, cpu uint64) proc { return proc{Stat: process.Stat{Start: start, CPU: cpu}} }

// sized returns a process with its start time and its memory.
func sized(start uint64, memory, shared int64) proc {
	return proc{process.Stat{Start: start}, memory, shared}
}

// TestTally checks the measurements of a rank after several samples.
func TestTally(t *testing.T) {
	const second = time.Second
	type sample struct {
		at        time.Duration
		processes []proc
	}
	for _, c := range []struct {
		name    string
		samples []sample
		want    Rank
	}{
		{"one sample", []sample{{12 * second, []proc{{process.Stat{Start: 1000, CPU: 100}, 10, 4}}}},
			Rank{CPUMean: 0.5, CPUPeak: 0.5, MemoryMean: 10, MemoryPeak: 10, Processes: 1}},
		{"a busy interval", []sample{{12 * second, []proc{ticks(1000, 100)}}, {14 * second, []proc{ticks(1000, 500)}}},
			Rank{CPUMean: 1.25, CPUPeak: 2, Processes: 1}},
		{"shared memory counts once", []sample{{12 * second, []proc{sized(1000, 10, 4), sized(1100, 8, 5)}}},
			Rank{MemoryMean: 14, MemoryPeak: 14, Processes: 2}},
		{"a worker that is lost", []sample{{12 * second, []proc{ticks(1000, 100), ticks(1000, 300)}}, {20 * second, []proc{ticks(1000, 200)}}},
			Rank{CPUMean: 0.4, CPUPeak: 2, Processes: 2}},
		{"samples without time between them", []sample{{12 * second, []proc{ticks(1000, 100)}}, {12 * second, []proc{ticks(1000, 200)}}},
			Rank{CPUMean: 1, CPUPeak: 1, Processes: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var sum tally
			for _, s := range c.samples {
				sum.add(s.processes, s.at)
			}
			if got := sum.rank(0); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestRankOf checks that a process belongs to the next rank above it.
func TestRankOf(t *testing.T) {
	all := map[int]proc{1: {Stat: process.Stat{PID: 1}}, 2: {Stat: process.Stat{PID: 2, Parent: 1}}, 3: {Stat: process.Stat{PID: 3, Parent: 2}}, 4: {Stat: process.Stat{PID: 4, Parent: 3}}, 5: {Stat: process.Stat{PID: 5, Parent: 5}}}
	known := map[int]knownProcess{1: {rank: noRank}, 2: {rank: 6}, 3: {rank: noRank}, 4: {rank: 7}, 5: {rank: noRank}}
	for pid, want := range map[int]int{1: noRank, 2: 6, 3: 6, 4: 7, 5: noRank, 9: noRank} {
		if got := rankOf(pid, all, known); got != want {
			t.Errorf("process %d belongs to rank %d, want %d", pid, got, want)
		}
	}
}

const nvidiaText = "0, GPU-aaaaaaaa-1, NVIDIA H100, 80GB, 93, 1024, 2048\n1, GPU-bbbbbbbb-1, NVIDIA A30, [N/A], [Not Supported], 2048\nwarning\n"

const rocmText = "WARNING: AMD GPU device(s) is/are in a low-power state\n" +
	`{"card1": {"GPU use (%)": "7", "Card Series": "AMD Instinct MI250X", "VRAM Total Memory (B)": "68702699520", "VRAM Total Used Memory (B)": "10960896"},
"card0": {"GPU use (%)": "N/A", "Card series": "AMD"}, "system": {"Driver version": "6"}}`

// TestParseTools checks the output of nvidia-smi and rocm-smi.
func TestParseTools(t *testing.T) {
	for _, c := range []struct {
		name  string
		parse func([]byte) ([]gpuSample, error)
		text  string
		want  []gpuSample
	}{
		{"nvidia-smi", parseNVIDIA, nvidiaText, []gpuSample{{0, "GPU-aaaaaaaa-1", "NVIDIA H100, 80GB", 0.93, 1 << 30, 2 << 30}, {1, "GPU-bbbbbbbb-1", "NVIDIA A30", -1, -1, 2 << 30}}},
		{"nvidia-smi without a driver", parseNVIDIA, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", nil},
		{"rocm-smi", parseROCm, rocmText, []gpuSample{{0, "", "AMD", -1, -1, -1}, {1, "", "AMD Instinct MI250X", 0.07, 10960896, 68702699520}}},
		{"rocm-smi without GPUs", parseROCm, "{}", nil},
		{"no JSON", parseROCm, "no GPUs", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.parse([]byte(c.text))
			if len(got) != len(c.want) || (err == nil) != (len(c.want) > 0) {
				t.Fatalf("got %+v, %v, want %+v", got, err, c.want)
			}
			for i := range got {
				if got[i].busy = float64(int(100*got[i].busy+0.5)) / 100; got[i] != c.want[i] && c.want[i].busy >= 0 {
					t.Errorf("got %+v, want %+v", got[i], c.want[i])
				}
			}
		})
	}
}

// TestSelectVisible checks which GPUs belong to the job.
func TestSelectVisible(t *testing.T) {
	gpus := []gpuSample{{index: 0, uuid: "GPU-aaaaaaaa"}, {index: 1, uuid: "GPU-bbbbbbbb"}, {index: 2, uuid: "GPU-cccccccc"}}
	for _, c := range []struct {
		name, list string
		ranks      int
		want       int // number of GPUs
	}{
		{"no list", "", 2, 3},
		{"two", "2,0", 2, 2},
		{"UUIDs", "GPU-cccccccc,GPU-aaaaaaaa", 2, 2},
		{"one of one rank", "1", 1, 1},
		{"one of several ranks", "1", 2, 3},
		{"MIG", "MIG-1,MIG-2", 2, 3},
	} {
		if got := selectVisible(gpus, c.list, c.ranks); len(got) != c.want {
			t.Errorf("%s: got %+v, want %d", c.name, got, c.want)
		}
	}
}

// TestResultIsCopy checks that later samples do not change a result, which is written without a lock.
func TestResultIsCopy(t *testing.T) {
	var sum gpuTally
	sum.add(gpuSample{busy: 0.5})
	g := sum.gpu(0)
	sum.add(gpuSample{busy: 1})
	if *g.BusyMean != 0.5 || *g.BusyPeak != 0.5 {
		t.Errorf("got mean %v and peak %v, want 0.5", *g.BusyMean, *g.BusyPeak)
	}
}

// TestSampler checks the measurements of a real process and a GPU tool, that a child counts for
// its rank, and that the tool gets no other variables.
func TestSampler(t *testing.T) {
	bin := t.TempDir()
	tool := "#!/bin/sh\necho \"0, GPU-aaaaaaaa, model $SECRET, 50, 1, 2\"\n"
	if err := os.WriteFile(filepath.Join(bin, "nvidia-smi"), []byte(tool), 0o700); err != nil {
		t.Fatal(err)
	}
	program := exec.CommandContext(t.Context(), "sh", "-c", "env -i sleep 600 & wait")
	program.Env = []string{"PATH=" + os.Getenv("PATH"), process.RunVariable + "=00ff", process.RankVariable + "=3", process.NodeVariable + "=n1"}
	program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-program.Process.Pid, syscall.SIGKILL)
		_ = program.Wait()
	}()
	var mu sync.Mutex
	var last []byte
	stop := start(Options{Run: "00ff", Node: Node{Node: 1, Host: "n1", Attempt: 2}, Ranks: 1,
		Environ: []string{"PATH=" + bin + ":/usr/bin:/bin", process.NodeVariable + "=n1", "SECRET=leaked"},
		Write: func(text []byte) error {
			mu.Lock()
			defer mu.Unlock()
			last = text
			return nil
		}}, 100*time.Millisecond)
	defer stop()
	for {
		mu.Lock()
		nodes := Parse([][]byte{last})
		mu.Unlock()
		if len(nodes) == 1 && len(nodes[0].GPUs) == 1 && nodes[0].Ranks[0].Processes > 1 {
			n := nodes[0]
			r, g := n.Ranks[0], n.GPUs[0]
			if n.Host != "n1" || n.Attempt != 2 || len(n.Ranks) != 1 || r.Rank != 3 || r.MemoryPeak <= 0 || r.Cores <= 0 {
				t.Errorf("got %+v", n)
			}
			if g.Name != "model" || g.MemoryTotal != 2<<20 || g.BusyMean == nil || *g.BusyMean != 0.5 {
				t.Errorf("got GPU %+v", g)
			}
			return
		}
		if t.Context().Err() != nil {
			t.Fatalf("got %s", last)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestParse checks the limits of files that another user may own.
func TestParse(t *testing.T) {
	many := `{"ranks":[` + strings.TrimSuffix(strings.Repeat("{},", maxRanks+1), ",") + `]}`
	nodes := Parse([][]byte{[]byte(`{"node":2,"ranks":[{"rank":5}]}`), []byte("{"), []byte(`{"node":3}`), []byte(many), []byte(`{"node":1,"ranks":[{"rank":9,"cores":8,"cpu_mean":2.5,"memory_peak":1073741824}]}`)})
	if len(nodes) != 2 || nodes[0].Node != 1 || nodes[1].Node != 2 {
		t.Fatalf("got %+v", nodes)
	}
	if ranks := Ranks(nodes); len(ranks) != 2 || ranks[0].Rank != 5 {
		t.Errorf("got ranks %+v", ranks)
	}
	for _, c := range []struct {
		nodes []Node
		want  string
	}{
		{nil, ""},
		{nodes, "CPU 1.2 cores per rank, memory up to 1 GiB per rank"},
		{nodes[:1], "CPU 2.5 of 8 cores per rank, memory up to 1 GiB per rank"},
	} {
		if got := Summary(c.nodes); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// TestParseStoresLittle checks that a file with a repeated key does not leave the memory of its longest
// list. Another user may own the file.
func TestParseStoresLittle(t *testing.T) {
	long := strings.TrimSuffix(strings.Repeat("{},", 100_000), ",")
	nodes := Parse([][]byte{[]byte(`{"ranks":[` + long + `],"gpus":[` + long + `],"ranks":[{"rank":1}],"gpus":[{"index":2}]}`)})
	if len(nodes) != 1 || len(nodes[0].Ranks) != 1 || len(nodes[0].GPUs) != 1 {
		t.Fatalf("got %d nodes, want one with a rank and a GPU", len(nodes))
	}
	if ranks, gpus := cap(nodes[0].Ranks), cap(nodes[0].GPUs); ranks > 100 || gpus > 100 {
		t.Errorf("got memory for %d ranks and %d GPUs, want one of each", ranks, gpus)
	}
}

// TestParseRejectsImpossibleValues checks values that a file of another user may have. Sums of them
// would be infinite, and JSON cannot hold these.
func TestParseRejectsImpossibleValues(t *testing.T) {
	for name, tt := range map[string]struct {
		node  string
		valid bool
	}{
		"a large node":    {`{"host":"n1","ranks":[{"rank":7,"cores":1024,"cpu_mean":1024,"memory_peak":4398046511104}],"gpus":[{"busy_mean":1}]}`, true},
		"rank":            {`{"ranks":[{"rank":-1}]}`, false},
		"cores":           {`{"ranks":[{"cores":1000000000}]}`, false},
		"CPU":             {`{"ranks":[{"cpu_mean":1e308}]}`, false},
		"CPU, negative":   {`{"ranks":[{"cpu_peak":-1}]}`, false},
		"memory":          {`{"ranks":[{"memory_peak":9223372036854775807}]}`, false},
		"share of a GPU":  {`{"ranks":[{}],"gpus":[{"busy_mean":1e308}]}`, false},
		"peak of a GPU":   {`{"ranks":[{}],"gpus":[{"busy_peak":1.1}]}`, false},
		"memory of a GPU": {`{"ranks":[{}],"gpus":[{"memory_total":-1}]}`, false},
		"name of a GPU":   {`{"ranks":[{}],"gpus":[{"name":"` + strings.Repeat("x", maxName+1) + `"}]}`, false},
		"host":            {`{"host":"` + strings.Repeat("x", maxHost+1) + `","ranks":[{}]}`, false},
	} {
		if nodes := Parse([][]byte{[]byte(tt.node)}); len(nodes) == 1 != tt.valid {
			t.Errorf("%s: got %+v, want valid: %v", name, nodes, tt.valid)
		}
	}
}

// FuzzParse checks that no text of a tool, of /proc, or of a file stops the program.
func FuzzParse(f *testing.F) {
	for _, text := range []string{nvidiaText, rocmText, "900 200 50", `{"ranks":[{"rank":5}],"gpus":[{"busy_mean":0.5}]}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, parse := range []func([]byte) ([]gpuSample, error){parseNVIDIA, parseROCm} {
			gpus, err := parse(text)
			if (err == nil) != (len(gpus) > 0) {
				t.Errorf("%d GPUs, %v", len(gpus), err)
			}
			for _, g := range gpus {
				var sum gpuTally
				sum.add(g)
				if r := sum.gpu(g.index); len(r.Name) > maxName || r.MemoryPeak < 0 {
					t.Errorf("got %+v", r)
				}
			}
		}
		_, _, _ = parseStatm(text)
		_ = Summary(Parse([][]byte{text}))
	})
}
