package trainlog

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/metrics"
	"github.com/ddpbatch/ddpbatch/trainer/metrics/tensorboard"
)

// newParser returns a parser with names, such as {"loss": "my/loss"}.
func newParser(t *testing.T, names map[string]string) *Parser {
	t.Helper()
	p, err := New(nil, false)
	if err != nil {
		t.Fatal(err)
	}
	for group, name := range names {
		if err := p.SetName(group, name); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// TestSourceReadsFiles reads files that existed before and files that grow.
func TestSourceReadsFiles(t *testing.T) {
	for _, tt := range []struct {
		name          string
		file          string // relative to the directory
		pattern       string
		format        Format
		names         map[string]string
		before, after string
		want          []summary
	}{
		{name: "JSON lines", file: "log.jsonl", pattern: "log.jsonl", format: JSONLines,
			before: `{"step": 1, "loss": 9}` + "\n",
			after:  `{"global_step": 2, "train": {"loss": 2.5, "lr": 0.1}, "eval/loss": 3, "max_steps": 40}` + "\nno object\n{\"step\": 3}\n{\"step\": 4, \"loss\": Infinity}\n",
			want: []summary{{kind: "train", step: 2, steps: 40, loss: 2.5, lr: 0.1}, {kind: "eval", step: 2, steps: 40, loss: 3},
				{kind: "train", step: 4, steps: 40, loss: math.Inf(1)}}},
		{name: "names of this host", file: "log.jsonl", pattern: "log.jsonl", format: JSONLines,
			names: map[string]string{"step": "updates", "loss": "objective", "samples_per_s": "speed"},
			after: `{"updates": 7, "objective": 1.5, "loss": 100, "step": 5, "speed": "20"}` + "\n",
			want:  []summary{{kind: "train", step: 7, loss: 1.5, samples: 20}}},
		{name: "CSV of Lightning", file: "version_1/metrics.csv", pattern: "version_*/metrics.csv", format: CSV,
			after: "epoch,step,train_loss_step,val_loss,lr-Adam\r\n0,49,0.5,,\n0,99,,0.75,\n0,99,0.25,,0.1\n",
			want: []summary{{kind: "train", step: 49, epoch: 0, loss: 0.5}, {kind: "eval", step: 99, epoch: 1, loss: 0.75},
				{kind: "train", step: 99, loss: 0.25}}},
		{name: "CSV with header and lines before", file: "a.csv", pattern: "a.csv", format: CSV,
			before: "step, loss ,\"tokens_per_s\"\n1,9,1\n", after: "2,\"1.5\",3\n4,nan\n",
			want: []summary{{kind: "train", step: 2, loss: 1.5, tokens: 3}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, tt.file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if tt.before != "" {
				if err := os.WriteFile(path, []byte(tt.before), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s, err := NewSource(newParser(t, tt.names), filepath.Join(dir, tt.pattern), tt.format)
			if err != nil {
				t.Fatal(err)
			}
			var got []metrics.Record
			add := func(m metrics.Record) { got = append(got, m) }
			for i := range len(tt.after) {
				if err := os.WriteFile(path, []byte(tt.before+tt.after[:i+1]), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := s.Read(add); err != nil {
					t.Fatal(err)
				}
			}
			all := summarize(got)
			if tt.name == "CSV with header and lines before" && len(all) == 2 {
				all = all[:1] // NaN differs from itself
			}
			if !reflect.DeepEqual(all, tt.want) {
				t.Errorf("got %+v\nwant %+v", all, tt.want)
			}
		})
	}
}

// TestSourceSkipsOldLinesOfRewrittenCSV checks that the lines of a rewritten file that were read
// before give no records, and that its columns are those of the new header.
func TestSourceSkipsOldLinesOfRewrittenCSV(t *testing.T) {
	const (
		short = "epoch,step,train_loss_step\n"
		wide  = "epoch,step,train_loss_epoch,train_loss_step,val_loss\n"
	)
	for _, tt := range []struct {
		name     string
		versions []string // contents of the file; the first one precedes the source
		want     []summary
	}{
		{name: "more columns", versions: []string{"", short + "0,49,0.5\n0,99,0.4\n", wide + "0,49,,0.5,\n0,99,,0.4,\n0,99,,,0.75\n", wide + "0,49,,0.5,\n0,99,,0.4,\n0,99,,,0.75\n1,149,,0.25,\n"},
			want: []summary{{kind: "train", step: 49, loss: 0.5}, {kind: "train", step: 99, loss: 0.4}, {kind: "eval", step: 99, epoch: 1, loss: 0.75}, {kind: "train", step: 149, epoch: 1, loss: 0.25}}},
		{name: "more columns in a file with lines before", versions: []string{short + "0,9,9\n0,1", short + "0,9,9\n0,19,8\n", wide + "0,9,,9,\n0,19,,8,\n0,29,,7,\n"},
			want: []summary{{kind: "train", step: 19, loss: 8}, {kind: "train", step: 29, loss: 7}}},
		{name: "read while it is rewritten", versions: []string{"", short + "0,49,0.5\n0,99,0.4\n", "", "epoch,st", wide + "0,49,,0.5,\n", wide + "0,49,,0.5,\n0,99,,0.4,\n0,149,,0.25,\n"},
			want: []summary{{kind: "train", step: 49, loss: 0.5}, {kind: "train", step: 99, loss: 0.4}, {kind: "train", step: 149, loss: 0.25}}},
		{name: "shorter, then complete again", versions: []string{"", short + "0,9,0.5\n0,99,0.4\n", short + "0,9,0.5\n", short + "0,9,0.5\n0,99,0.4\n0,149,0.25\n"},
			want: []summary{{kind: "train", step: 9, loss: 0.5}, {kind: "train", step: 99, loss: 0.4}, {kind: "train", step: 149, loss: 0.25}}},
		{name: "a new file of the attempt", versions: []string{short + "0,9,9\n0,19,8\n0,29,7\n", short + "0,9,0.5\n", short + "0,9,0.5\n0,19,0.4\n"},
			want: []summary{{kind: "train", step: 9, loss: 0.5}, {kind: "train", step: 19, loss: 0.4}}},
		{name: "longer than the last part of a log", versions: []string{"", short + "0,49,0.5\n", wide + "0,49,,0.5,\n" + strings.Repeat("0,49,,,\n", maxRead/8) + "0,99,,0.4,\n"},
			want: []summary{{kind: "train", step: 49, loss: 0.5}, {kind: "train", step: 99, loss: 0.4}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "metrics.csv")
			write := func(text string) {
				t.Helper()
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(tt.versions[0])
			p, err := New(nil, true)
			if err != nil {
				t.Fatal(err)
			}
			s, err := NewSource(p, path, CSV)
			if err != nil {
				t.Fatal(err)
			}
			var got []metrics.Record
			for _, text := range tt.versions[1:] {
				write(text)
				if err := s.Read(func(m metrics.Record) { got = append(got, m) }); err != nil {
					t.Fatal(err)
				}
			}
			if all := summarize(got); !reflect.DeepEqual(all, tt.want) {
				t.Errorf("got %+v\nwant %+v", all, tt.want)
			}
		})
	}
}

// TestSourceCountsSkippedLines checks that the lines of a CSV file that are skipped need no memory each.
func TestSourceCountsSkippedLines(t *testing.T) {
	const lines = 1 << 20
	path := filepath.Join(t.TempDir(), "metrics.csv")
	if err := os.WriteFile(path, []byte("step,loss\n"+strings.Repeat("1\n", lines)), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := New(nil, true)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, err := NewSource(p, path, CSV)
	runtime.ReadMemStats(&after)
	if err != nil || s.files[path].read != lines+1 {
		t.Fatalf("got %+v, %v, want %d lines", s.files[path], err, lines+1)
	}
	// The buffer has 2 bytes for each line, and a line that is stored needs at least 16 bytes more.
	if n := after.TotalAlloc - before.TotalAlloc; n > 12*lines {
		t.Errorf("allocated %d bytes for %d lines", n, lines)
	}
}

// TestSourceReadsEventFiles reads event files below a directory. It ignores the events of an
// earlier attempt, and joins the scalars of a step that are written one by one.
func TestSourceReadsEventFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(sub string, step int, scalars ...tensorboard.Scalar) {
		t.Helper()
		f, err := tensorboard.Create(filepath.Join(dir, sub), "host", 0, time.Unix(int64(step), 0))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range scalars {
			if err := f.Write(time.Unix(1, 0), step, s); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write("old", 100, tensorboard.Scalar{Tag: "train/loss", Value: 9})
	s, err := NewSource(newParser(t, nil), dir, TensorBoard)
	if err != nil {
		t.Fatal(err)
	}
	var got []metrics.Record
	add := func(m metrics.Record) { got = append(got, m) }
	read := func() {
		t.Helper()
		if err := s.Read(add); err != nil {
			t.Fatal(err)
		}
	}
	write("runs", 10, tensorboard.Scalar{Tag: "train/loss", Value: 0.5}, tensorboard.Scalar{Tag: "train/learning_rate", Value: 0.25}, tensorboard.Scalar{Tag: "train/epoch", Value: 1.5})
	read()
	if len(got) != 0 {
		t.Errorf("the step is not complete yet: %+v", got)
	}
	write("runs", 20, tensorboard.Scalar{Tag: "eval/loss", Value: 0.75}, tensorboard.Scalar{Tag: "eval/accuracy", Value: 0.5}, tensorboard.Scalar{Tag: "other", Value: 1})
	read()
	read()
	want := []summary{{kind: "train", step: 10, epoch: 1, loss: 0.5, lr: 0.25}, {kind: "eval", step: 20, epoch: 1, loss: 0.75, accuracy: 0.5}}
	if all := summarize(got); !reflect.DeepEqual(all, want) {
		t.Errorf("got %+v\nwant %+v", all, want)
	}
	// A file that is not an event file is an error, once.
	if err := os.WriteFile(filepath.Join(dir, "events.out.tfevents.9"), []byte(strings.Repeat("x", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Read(add); err == nil || !strings.Contains(err.Error(), "events.out.tfevents.9") {
		t.Errorf("invalid event file: %v", err)
	}
	read()
}

// TestMeaning checks the names in files of common frameworks.
func TestMeaning(t *testing.T) {
	p := newParser(t, nil)
	for name, want := range map[string]quantity{
		"global_step": qStep, "trainer/global_step": quantities, "Loss/train": qLoss, "Loss/val": qEvalLoss, "val/acc": qEvalAccuracy, "accuracy/test": qEvalAccuracy,
		"train/learning_rate": qLR, "train_loss_epoch": qLoss, "val_loss": qEvalLoss, "throughput/tokens_per_sec": qTokensPerSecond, "loss": qLoss,
		"eval/runtime": quantities, "eval/samples_per_second": quantities, "grad_norm": quantities, "a/b/loss": quantities, "critic/loss": quantities,
	} {
		f, ok := p.meaning(name)
		if ok != (want != quantities) || ok && f.quantity != want {
			t.Errorf("%s: got %v, %v, want %v", name, f, ok, want)
		}
	}
	if err := p.SetName("speed", "x"); err == nil || !strings.Contains(err.Error(), "samples_per_s") {
		t.Errorf("unknown group: %v", err)
	}
}

// FuzzSource checks that a source survives any file, and that steps never decrease.
func FuzzSource(f *testing.F) {
	f.Add("step,loss\n1,2\n2,1\n")
	f.Add(`{"step": 1, "loss": {"a": 2}}` + "\n" + `{"step": 1e99, "loss": "inf"}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, format := range []Format{CSV, JSONLines, TensorBoard} {
			p, err := New(nil, false)
			if err != nil {
				t.Fatal(err)
			}
			s := &Source{parser: p, path: path, format: format, files: map[string]*sourceFile{}}
			newest := map[string]int{"train": -1, "eval": -1}
			check := func(m metrics.Record) {
				if m.Step <= newest[m.Kind] {
					t.Errorf("%s: step %d after %d", format, m.Step, newest[m.Kind])
				}
				newest[m.Kind] = m.Step
			}
			_ = s.Read(check)
			s.Flush(check)
		}
	})
}
