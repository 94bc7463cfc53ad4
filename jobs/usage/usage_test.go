package usage

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func statText(pid, parent int, times string, start int) string {
	return strings.Join([]string{itoa(pid), "(py) S (3) S", itoa(parent), "1 1 0 -1 4194304 0 0 0 0", times, "20 0 1 0", itoa(start), "1000 50"}, " ")
}

func itoa(n int) string {
	text, _ := json.Marshal(n)
	return string(text)
}

// TestParseStat checks the fields of a process, and texts that are not those of a process.
func TestParseStat(t *testing.T) {
	got, err := parseStat([]byte(statText(7, 5, "10 20 30 40", 900)))
	if want := (proc{pid: 7, parent: 5, start: 900, cpu: 100}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, text := range []string{"", "7 (sleep) S 1 2", "x (sleep) S" + strings.Repeat(" 1", 30), statText(7, 5, "10 x 30 40", 900)} {
		if got, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
	if resident, shared, err := parseStatm([]byte("900 200 50 1 0 100 0\n")); resident != 200 || shared != 50 || err != nil {
		t.Errorf("memory is %d and %d, %v, want 200 and 50", resident, shared, err)
	}
	for _, text := range []string{"", "1 2", "1 x 2", "1 2 x"} {
		if _, _, err := parseStatm([]byte(text)); err == nil {
			t.Errorf("%q: want an error", text)
		}
	}
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
		{"one sample", []sample{{12 * second, []proc{{start: 1000, cpu: 100, memory: 10, shared: 4}}}},
			Rank{CPUMean: 0.5, CPUPeak: 0.5, MemoryMean: 10, MemoryPeak: 10, Processes: 1}},
		{"a busy interval", []sample{{12 * second, []proc{{start: 1000, cpu: 100}}}, {14 * second, []proc{{start: 1000, cpu: 500}}}},
			Rank{CPUMean: 1.25, CPUPeak: 2, Processes: 1}},
		{"shared memory counts once", []sample{{12 * second, []proc{{start: 1000, memory: 10, shared: 4}, {start: 1100, memory: 8, shared: 5}}}},
			Rank{MemoryMean: 14, MemoryPeak: 14, Processes: 2}},
		{"a worker that is lost", []sample{{12 * second, []proc{{start: 1000, cpu: 100}, {start: 1000, cpu: 300}}}, {20 * second, []proc{{start: 1000, cpu: 200}}}},
			Rank{CPUMean: 0.4, CPUPeak: 2, Processes: 2}},
		{"samples without time between them", []sample{{12 * second, []proc{{start: 1000, cpu: 100}}}, {12 * second, []proc{{start: 1000, cpu: 200}}}},
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
	all := map[int]proc{1: {pid: 1}, 2: {pid: 2, parent: 1}, 3: {pid: 3, parent: 2}, 4: {pid: 4, parent: 3}, 5: {pid: 5, parent: 5}}
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

// TestSampler checks the measurements of a real process and a GPU tool, that a child counts for its rank,
// and that the tool gets no other variables.
func TestSampler(t *testing.T) {
	bin := t.TempDir()
	tool := "#!/bin/sh\necho \"0, GPU-aaaaaaaa, model $SECRET, 50, 1, 2\"\n"
	if err := os.WriteFile(filepath.Join(bin, "nvidia-smi"), []byte(tool), 0o700); err != nil {
		t.Fatal(err)
	}
	program := exec.CommandContext(t.Context(), "sh", "-c", "env -i sleep 600 & wait")
	program.Env = []string{"PATH=" + os.Getenv("PATH"), runVariable + "=00ff", rankVariable + "=3", nodeVariable + "=n1"}
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
		Environ: []string{"PATH=" + bin + ":/usr/bin:/bin", nodeVariable + "=n1", "SECRET=leaked"},
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

// FuzzParse checks that no text of a tool, of /proc, or of a file stops the program.
func FuzzParse(f *testing.F) {
	for _, text := range []string{nvidiaText, rocmText, statText(7, 5, "1 2 3 4", 9), "900 200 50", `{"ranks":[{"rank":5}],"gpus":[{"busy_mean":0.5}]}`} {
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
		_, _ = parseStat(text)
		_, _, _ = parseStatm(text)
		_ = Summary(Parse([][]byte{text}))
	})
}
