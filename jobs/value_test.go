package jobs

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
)

func TestWallTime(t *testing.T) {
	const minute, hour, day = time.Minute, time.Hour, 24 * time.Hour
	for s, want := range map[string]time.Duration{
		"90":         90 * minute,
		"1":          minute,
		"1000000":    1000000 * minute,
		"90:30":      90*minute + 30*time.Second,
		"0:01":       time.Second,
		"02:00:00":   2 * hour,
		"100:59:59":  100*hour + 59*minute + 59*time.Second,
		"1-0":        day,
		"1-12":       36 * hour,
		"1-12:30":    36*hour + 30*minute,
		"1-12:30:05": 36*hour + 30*minute + 5*time.Second,
		"0-1:2:3":    hour + 2*minute + 3*time.Second,
	} {
		var w WallTime
		if err := w.UnmarshalTOML(s); err != nil || w.Duration() != want || string(w) != s {
			t.Errorf("%q is %s (%v), want %s", s, w.Duration(), err, want)
		}
	}
	for _, s := range []string{
		"", "0", "00:00:00", "0-0", "-1", "1-", "-", "1-24", "1-1:60", "1-1:1:60", "25:99:00", "1:60:00", "1:60",
		"1:2:3:4", "1-1:2:3:4", "1:", ":1", "::", "1.5", "1h", "2 hours", "UNLIMITED", " 1", "1 ", "+1", "٣",
		"5000000000", "999999999", "99999-0", "1--1",
	} {
		var w WallTime
		if err := w.UnmarshalTOML(s); err == nil || w != "" {
			t.Errorf("%q is accepted as %s", s, w.Duration())
		}
		if d := WallTime(s).Duration(); d != 0 {
			t.Errorf("%q lasts %s", s, d)
		}
	}
}

func TestMemory(t *testing.T) {
	for s, want := range map[string]int64{
		"1K": 1 << 10, "512M": 512 << 20, "64G": 64 << 30, "2T": 2 << 40, "8388607T": 8388607 << 40,
	} {
		var m Memory
		if err := m.UnmarshalTOML(s); err != nil || m.Bytes() != want || string(m) != s {
			t.Errorf("%q is %d bytes (%v), want %d", s, m.Bytes(), err, want)
		}
	}
	for s, meant := range map[string]string{
		"": "", "64": "", "G": "", "0G": "", "1.5G": "", "-1G": "", "1P": "", "8388608T": "", "99999999999999999999K": "",
		"64g": "64G", "64GB": "64G", "64 GiB": "64G", "512 mb": "512M",
	} {
		var m Memory
		err, _ := m.UnmarshalTOML(s).(*valueError)
		if err == nil || m.Bytes() != 0 {
			t.Errorf("%q is accepted as %d bytes", s, m.Bytes())
		} else if err.suggestion != meant {
			t.Errorf("%q suggests %q, want %q", s, err.suggestion, meant)
		}
	}
}

func TestSize(t *testing.T) {
	for s, want := range map[string]Size{"1 KiB": 1 << 10, "25 MiB": 25 << 20, "1 GiB": 1 << 30} {
		var size Size
		if err := size.UnmarshalTOML(s); err != nil || size != want || size.String() != s {
			t.Errorf("%q is %d = %q (%v), want %d", s, size, size, err, want)
		}
	}
	for s, meant := range map[string]string{
		"": "", "25": "", "MiB": "", " MiB": "", "0 MiB": "", "1.5 MiB": "", "-1 MiB": "", "+1 MiB": "", "2 GiB": "", "1025 MiB": "", "1 TiB": "",
		"25MiB": "25 MiB", "25 MB": "25 MiB", "25M": "25 MiB", "512k": "512 KiB", "1  GiB": "1 GiB", "25 mib": "25 MiB", "25 MiB ": "25 MiB",
	} {
		var size Size
		err, _ := size.UnmarshalTOML(s).(*valueError)
		if err == nil || size != 0 {
			t.Errorf("%q is accepted as %d bytes", s, size)
		} else if err.suggestion != meant {
			t.Errorf("%q suggests %q, want %q", s, err.suggestion, meant)
		}
	}
	if got := Size(1536).String(); got != "1536 B" {
		t.Errorf("1536 bytes are %q", got)
	}
}

func TestInterval(t *testing.T) {
	for s, want := range map[string]Interval{
		"500 steps": {500, Steps}, "1 step": {1, Steps}, "1 epoch": {1, Epochs}, "2 epochs": {2, Epochs},
		"2147483647 steps": {math.MaxInt32, Steps},
	} {
		var i Interval
		if err := i.UnmarshalTOML(s); err != nil || i != want || i.String() != s {
			t.Errorf("%q is %+v = %q (%v)", s, i, i, err)
		}
	}
	for _, s := range []string{"", "500", "steps", "0 steps", "-1 steps", "+1 steps", "1.5 epochs", "1  step", " 1 step", "1 step ", "2147483648 steps", "1 hour", "1 Epoch"} {
		var i Interval
		if err := i.UnmarshalTOML(s); err == nil {
			t.Errorf("%q is accepted as %v", s, i)
		}
	}
	if !(Interval{}).IsZero() || (Interval{1, Steps}).IsZero() {
		t.Error("IsZero is wrong")
	}
}

func TestStepRange(t *testing.T) {
	for s, want := range map[string]StepRange{"100-110": {100, 110}, "1-1": {1, 1}, "1-1000": {1, 1000}, "999999999-999999999": {999999999, 999999999}} {
		var r StepRange
		if err := r.UnmarshalTOML(s); err != nil || r != want || r.String() != s {
			t.Errorf("%q is %+v = %q (%v)", s, r, r, err)
		}
	}
	for s, meant := range map[string]string{"": "", "-": "", "1-": "", "-1": "", "0-1": "", "2-1": "", "1-1001": "", "1 - 2": "", "+1-2": "", "1-2-3": "",
		"1-1000000000": "", "a-b": "", "100": "100-100", "0": ""} {
		var r StepRange
		err, _ := r.UnmarshalTOML(s).(*valueError)
		if err == nil || !r.IsZero() {
			t.Errorf("%q is accepted as %v", s, r)
		} else if err.suggestion != meant {
			t.Errorf("%q suggests %q, want %q", s, err.suggestion, meant)
		}
	}
}

func TestDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{"120s": 2 * time.Minute, "1h30m": 90 * time.Minute, "0": 0, "0s": 0} {
		var d Duration
		if err := d.UnmarshalTOML(s); err != nil || time.Duration(d) != want {
			t.Errorf("%q is %s (%v)", s, d, err)
		}
	}
	for _, s := range []string{"", "120", "-1s", "1 s", "1d", "s", "9999999h"} {
		var d Duration
		if err := d.UnmarshalTOML(s); err == nil {
			t.Errorf("%q is accepted as %s", s, d)
		}
	}
}

func TestName(t *testing.T) {
	for _, s := range []string{"a", "a b", "prüf-日本", "$(rm -rf)", "100%", "a.b-c", strings.Repeat("é", 127), strings.Repeat("é", 127) + "x"} {
		var n Name
		if err := n.UnmarshalTOML(s); err != nil || string(n) != s {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{"", "-a", ".", "..", ".a", "a/b", "/", "a\nb", "a\x00", "a\x1b[0m", "a\u200bb", "a\u3164b", "a\u00a0b", "a\u2028b",
		"a\u202eb", "lr#3", "it's", `"quoted"`, "`date`", `back\slash`, strings.Repeat("a", 129), strings.Repeat("é", 128), strings.Repeat("日", 100)} {
		var n Name
		if err := n.UnmarshalTOML(s); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
}

func TestInterfaceName(t *testing.T) {
	for _, s := range []string{"auto", "eth0", "eth0.100", "ib0", "enp129s0f0np0", "br-0123456789ab", "ünï"} {
		var n InterfaceName
		if err := n.UnmarshalTOML(s); err != nil || string(n) != s {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{"", ".", "..", "a/b", "eth0:1", "a b", "a\tb", "a\nb", "0123456789abcdef", "日本日本日本"} {
		var n InterfaceName
		if err := n.UnmarshalTOML(s); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
}

func TestEnvName(t *testing.T) {
	for _, s := range []string{"A", "_", "_1", "OMP_NUM_THREADS", "http_proxy", "SLURM", "RANKS", "NCCL_DEBUG"} {
		var n EnvName
		if err := n.UnmarshalTOML(s); err != nil || string(n) != s {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{"", "1A", "A-B", "A B", "A=B", "Ä", "A\n", "SLURM_JOB_ID", "SBATCH_PARTITION", "SRUN_X", "DDPBATCH_SECRET", "RANK", "MASTER_PORT"} {
		var n EnvName
		if err := n.UnmarshalTOML(s); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
}

// TestNumbers checks the ranges of numeric keys.
func TestNumbers(t *testing.T) {
	const count, any0, seed, positive, fraction, weight, share = "slurm.nodes", "restart.requeue", "train.seed", "train.optimizer.lr",
		"train.optimizer.momentum", "train.schedule.floor", "train.data.holdout"
	for _, c := range []struct {
		key string
		v   any
		ok  bool
	}{
		{count, int64(1), true}, {count, int64(math.MaxInt32), true}, {count, int64(0), false},
		{count, int64(math.MaxInt32 + 1), false}, {count, 1.0, false}, {count, "1", false}, {count, true, false},
		{any0, int64(0), true}, {any0, int64(-1), false},
		{seed, int64(0), true}, {seed, int64(math.MaxInt64), true}, {seed, int64(-1), false},
		{positive, 1e-45, true}, {positive, 1e-46, false}, {positive, 1e38, true}, {positive, 1e39, false}, {positive, int64(1), true}, {positive, int64(0), false}, {positive, 0.0, false},
		{positive, -1.0, false}, {positive, math.NaN(), false}, {positive, math.Inf(1), false}, {positive, "1", false},
		{fraction, 0.0, true}, {fraction, int64(0), true}, {fraction, 0.999, true}, {fraction, 1.0, false}, {fraction, 0.9999999, true}, {fraction, 0.99999999, false}, {fraction, 1e-46, false},
		{fraction, int64(1), false}, {fraction, -0.1, false}, {fraction, math.NaN(), false}, {fraction, false, false},
		{share, 0.0, true}, {share, int64(0), true}, {share, 0.5, true}, {share, 0.500001, false}, {share, -0.1, false},
		{share, math.NaN(), false}, {share, int64(1), false}, {share, "0.1", false},
		{weight, 0.0, true}, {weight, 1e38, true}, {weight, 1e39, false}, {weight, 1e-46, false}, {weight, -1e-300, false}, {weight, math.Inf(1), false}, {weight, math.Inf(-1), false},
	} {
		f := fieldAt(reflect.TypeFor[Job](), strings.Split(c.key, "."))
		if err := f.rules.limits.setNumber(c.v, reflect.New(f.typ).Elem()); (err == nil) != c.ok {
			t.Errorf("%s from %v: %v", c.key, c.v, err)
		}
	}
}

// TestNearest checks the suggestions for misspelled keys.
func TestNearest(t *testing.T) {
	names := []string{"cpus_per_task", "gpus_per_node", "mem", "nodes", "tasks_per_node", "time", "lr"}
	for word, want := range map[string]string{
		"nodez": "nodes", "ndoes": "nodes", "node": "nodes", "Nodes": "nodes", "gpus-per-node": "gpus_per_node",
		"gpus": "gpus_per_node", "ntasks_per_node": "tasks_per_node", "memory": "mem", "tiem": "time", "LR": "lr",
		"l": "lr", "partition": "", "x": "", "": "", "no": "", strings.Repeat("nodes", 1000): "",
	} {
		if got := Nearest(word, names); got != want {
			t.Errorf("Nearest(%.20q) = %q, want %q", word, got, want)
		}
	}
	if got := Nearest("alpha", []string{"alphabet1", "alphabet2"}); got != "" {
		t.Errorf("an ambiguous start gives %q", got)
	}
}

// TestTOMLList checks that a parser reads each word unchanged.
func TestTOMLList(t *testing.T) {
	words := []string{"", "a b", `"`, `\`, `\n`, "'", "é", "#", "a\nb\t\x7f"}
	var got struct{ V []string }
	if _, err := toml.Decode("V = "+TOMLList(words), &got); err != nil || !slices.Equal(got.V, words) {
		t.Errorf("got %q, %v, want %q", got.V, err, words)
	}
	if got, want := TOMLString("a\xffb"), "\"a\ufffdb\""; got != want {
		t.Errorf("invalid UTF-8: got %q, want %q", got, want)
	}
}
