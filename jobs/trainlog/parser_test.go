package trainlog

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// summary is the part of a record that the tests compare.
type summary struct {
	kind                  string
	step, steps           int
	epoch, epochs         int
	loss, accuracy, lr    float64
	samples, tokens, msec float64
}

func summarize(rs []metrics.Record) []summary {
	value := func(n *metrics.Number) float64 {
		if n == nil {
			return 0
		}
		return float64(*n)
	}
	var all []summary
	for _, r := range rs {
		all = append(all, summary{r.Kind, r.Step, r.Steps, r.Epoch, r.Epochs, value(r.Loss), value(r.Accuracy), value(r.LR),
			value(r.SamplesPerSecond), value(r.TokensPerSecond), value(r.StepMillis)})
	}
	return all
}

func parse(t *testing.T, pattern, log string) []summary {
	t.Helper()
	var patterns []string
	if pattern != "" {
		patterns = []string{pattern}
	}
	p, err := New(patterns, false)
	if err != nil {
		t.Fatal(err)
	}
	var all []metrics.Record
	for _, line := range strings.FieldsFunc(log, func(r rune) bool { return r == '\n' || r == '\r' }) {
		all = append(all, p.Line(line)...)
	}
	return summarize(all)
}

// TestFormats reads logs in the formats of common training programs.
func TestFormats(t *testing.T) {
	for _, tt := range []struct {
		name, log string
		want      []summary
	}{
		{"plain epochs", "Training on 2 GPUs\nepoch 1/100  loss 57.6895\nepoch 2/100  loss 41.8616\n", []summary{
			{kind: "train", step: 1, steps: 100, epoch: 0, epochs: 100, loss: 57.6895},
			{kind: "train", step: 2, steps: 100, epoch: 1, epochs: 100, loss: 41.8616},
		}},
		{"all ranks print", "epoch 1 loss 3.5\nepoch 1 loss 3.4\nepoch 2 loss 3\nepoch 1 loss 3.6\n", []summary{
			{kind: "train", step: 1, epoch: 0, loss: 3.5},
			{kind: "train", step: 2, epoch: 1, loss: 3},
		}},
		{"Hugging Face Trainer", "  0%|          | 0/300 [00:00<?, ?it/s]\r  1%|          | 2/300 [00:01<02:30,  1.98it/s]\r  3%|3         | 10/300 [00:05<02:25,  2.00it/s]" +
			"\r{'loss': 2.3145, 'grad_norm': 1.2, 'learning_rate': 4.8e-05, 'epoch': 0.1}\n" +
			"  7%|6         | 20/300 [00:10<02:20,  2.00it/s]\r{'eval_loss': 2.1, 'eval_accuracy': 0.41, 'eval_runtime': 1.2, 'eval_samples_per_second': 99.1, 'epoch': 0.2}\n" +
			"Downloading model:  45%|####5     | 45/100 [00:10<00:12,  4.40MB/s]\n", []summary{
			{kind: "train", step: 10, steps: 300, loss: 2.3145, lr: 4.8e-05, msec: 500},
			{kind: "eval", step: 20, steps: 300, loss: 2.1, accuracy: 0.41},
		}},
		// The bar of an evaluation has no title either. The last line has the mean loss of the run.
		{"Hugging Face Trainer with evaluations", " 50%|#####     | 10/20 [00:20<00:20,  2.00s/it]\r{'loss': 2.5, 'epoch': 0.5}\n" +
			" 50%|#####     | 10/20 [00:20<00:20,  2.00s/it]\n  0%|          | 0/30 [00:00<?, ?it/s]\x1b[A\n100%|##########| 30/30 [00:01<00:00, 25.00it/s]\x1b[A\r{'eval_loss': 2.25, 'epoch': 0.5}\n" +
			"100%|##########| 30/30 [00:01<00:00, 25.00it/s]\r{'loss': 2.2, 'epoch': 0.6}\n" +
			" 90%|#########1| 18/20 [00:36<00:04,  2.00s/it]\r{'loss': 2.0, 'epoch': 0.9}\n100%|##########| 20/20 [00:40<00:00,  2.00s/it]\n" +
			"100%|##########| 30/30 [00:01<00:00, 25.00it/s]\x1b[A\r{'eval_loss': 1.75, 'epoch': 1.0}\n" +
			"{'train_runtime': 42.0, 'train_samples_per_second': 7.6, 'train_steps_per_second': 0.5, 'train_loss': 2.2, 'epoch': 1.0}\n", []summary{
			{kind: "train", step: 10, steps: 20, loss: 2.5, msec: 2000},
			{kind: "eval", step: 10, steps: 20, loss: 2.25},
			{kind: "train", step: 18, steps: 20, loss: 2, msec: 2000},
			{kind: "eval", step: 20, steps: 20, epoch: 1, loss: 1.75},
		}},
		{"two training runs after a bar of the data", " 10%|#         | 1/10 [00:01<00:09,  1.00it/s]\r 50%|#####     | 10/20 [00:20<00:20,  2.00it/s]\r{'loss': 2.5}\n" +
			"100%|##########| 20/20 [00:20<00:00,  2.00it/s]\r{'loss': 2}\n 60%|######    | 24/40 [00:20<00:20,  4.00it/s]\r{'loss': 1.5}\n", []summary{
			{kind: "train", step: 10, steps: 20, loss: 2.5, msec: 500},
			{kind: "train", step: 20, steps: 20, loss: 2, msec: 500},
			{kind: "train", step: 24, steps: 40, loss: 1.5, msec: 250},
		}},
		{"Hugging Face Trainer, values as strings", " 10%|#         | 30/300 [00:05<02:25,  2.00it/s]\r{'loss': '1.5', 'learning_rate': '1e-05', 'epoch': '1.02'}\n", []summary{
			{kind: "train", step: 30, steps: 300, epoch: 1, loss: 1.5, lr: 1e-05, msec: 500},
		}},
		{"Lightning", "Epoch 0:   0%|          | 0/50 [00:00<?, ?it/s]\rEpoch 0:  40%|####      | 20/50 [00:10<00:15,  2.00it/s, v_num=3, train_loss=0.693]" +
			"\rEpoch 1:  40%|####      | 20/50 [00:10<00:15,  4.00it/s, v_num=3, train_loss=0.5]\rValidation DataLoader 0:  50%|#####     | 5/10 [00:01<00:01,  4.00it/s]\r" +
			"Epoch 1: 100%|##########| 50/50 [00:10<00:00,  4.00it/s, v_num=3, train_loss=0.4, val_loss=0.45, val_acc=0.9]\n", []summary{
			{kind: "train", step: 20, loss: 0.693, msec: 500},
			{kind: "train", step: 70, epoch: 1, loss: 0.5, msec: 250},
			{kind: "train", step: 100, epoch: 1, loss: 0.4, msec: 250},
			{kind: "eval", step: 100, epoch: 2, loss: 0.45, accuracy: 0.9},
		}},
		{"nanoGPT", "step 0: train loss 10.9, val loss 10.95\niter 0: loss 10.9123, time 2345.67ms, mfu -100.00%\niter 10: loss 9.5, time 123.45ms, mfu 12.34%\n", []summary{
			{kind: "train", step: 0, loss: 10.9},
			{kind: "eval", step: 0, loss: 10.95},
			{kind: "train", step: 10, loss: 9.5, msec: 123.45},
		}},
		{"torchtitan", "\x1b[32m[rank0]:[titan] 2026-01-02 03:04:05,678 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  7.1234  \x1b[38;2;180;60;0mgrad_norm:  1.5  \x1b[36mmemory:  9.63GiB(10.14%)  \x1b[34mtps: 12,345  tflops: 100.1  mfu: 32.1%\x1b[0m\n", []summary{
			{kind: "train", step: 10, loss: 7.1234, tokens: 12345},
		}},
		{"Megatron-LM", " [2026-01-02 03:04:05] iteration       10/     500 | consumed samples:           80 | elapsed time per iteration (ms): 123.4 | throughput per GPU (TFLOP/s/GPU): 12.3 | learning rate: 1.0E-04 | global batch size:     8 | lm loss: 1.05E+01 | loss scale: 1.0 | grad norm: 1.2 |\n" +
			"validation loss at iteration 10 | lm loss value: 2.3E+00 | lm loss PPL: 9.9E+00 |\n", []summary{
			{kind: "train", step: 10, steps: 500, loss: 10.5, lr: 1e-4, msec: 123.4},
			{kind: "eval", step: 10, steps: 500, loss: 2.3},
		}},
		{"DeepSpeed", "steps: 10 loss: 2.3456 iter time (s): 0.5 samples/sec: 12.3\n", []summary{
			{kind: "train", step: 10, loss: 2.3456, samples: 12.3, msec: 500},
		}},
		{"PyTorch MNIST example", "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.297\nTrain Epoch: 2 [0/60000 (0%)]\tLoss: 0.3\n", []summary{
			{kind: "train", step: 640, loss: 2.297},
			{kind: "train", step: 60000, epoch: 1, loss: 0.3},
		}},
		{"absurd length of an epoch", "Train Epoch: 3 [640/9223372036854775807 (1%)]\tLoss: 2\n", []summary{{kind: "train", step: 640, epoch: 2, loss: 2}}},
		{"torchvision", "Epoch: [0]  [  10/5005]  eta: 1:23:45  lr: 0.1  img/s: 123.4  loss: 6.9 (7.0)  acc1: 0.1 (0.1)\n", []summary{
			{kind: "train", step: 10, loss: 6.9, lr: 0.1, samples: 123.4},
		}},
		{"Lightning resumes", "Epoch 3:  40%|####      | 20/50 [00:10<00:15,  2.00it/s, v_num=3, train_loss=0.693]\n", []summary{
			{kind: "train", step: 170, epoch: 3, loss: 0.693, msec: 500},
		}},
		{"title with the number of epochs", "Epoch 1/10:  40%|####      | 20/50 [00:10<00:15,  2.00it/s, loss=0.693]\n", []summary{
			{kind: "train", step: 20, steps: 500, epochs: 10, loss: 0.693, msec: 500},
		}},
		{"epochs from 0", "epoch 0: loss 3\nepoch 1: loss 2\n", []summary{
			{kind: "train", step: 0, loss: 3}, {kind: "train", step: 1, epoch: 1, loss: 2},
		}},
		{"JSON lines", `{"step": 5, "train_loss": 1.25, "lr": 0.1}` + "\n", []summary{{kind: "train", step: 5, loss: 1.25, lr: 0.1}}},
		{"rate before its unit", "step 7 | loss 1.5 | 1,234 tok/s\n", []summary{{kind: "train", step: 7, loss: 1.5, tokens: 1234}}},
		{"steps of each epoch", "step 1 loss 9\nstep 50 loss 8\nstep 100 loss 7\nstep 1 loss 6\nstep 50 loss 5\n", []summary{
			{kind: "train", step: 1, loss: 9}, {kind: "train", step: 50, loss: 8}, {kind: "train", step: 100, loss: 7},
			{kind: "train", step: 101, loss: 6}, {kind: "train", step: 150, loss: 5},
		}},
		{"no progress", "loss function: cross entropy 3\nepochs: 10\nstep 3: loading data\nusing lr 0.1 for loss 2\nlost connection at step 5\n100%|##| 10/10 [00:01<00:00, 9.9it/s]\nMap: 10%|# | 1/10 [00:00<00:01, 9it/s, loss=3]\n",
			[]summary{{kind: "train", step: 1, steps: 10, loss: 3, msec: 1000. / 9}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := parse(t, "", tt.log); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// TestPattern checks that a pattern replaces the known formats, and that invalid patterns are
// rejected.
func TestPattern(t *testing.T) {
	got := parse(t, `^it=(?P<step>\d+) of (?P<steps>\d+).* L=(?P<loss>\S+)`, "it=5 of 100 L=2.5\nepoch 1 loss 2\nit=6 of 100 L=nan\n")
	if len(got) != 2 || got[0] != (summary{kind: "train", step: 5, steps: 100, loss: 2.5}) || got[1].step != 6 || got[1].loss == got[1].loss {
		t.Errorf("got %+v, want steps 5 and 6", got)
	}
	if got := parse(t, `chunk (?P<step>\d+) done`, "chunk 3 done\n"); len(got) != 1 || got[0].step != 3 {
		t.Errorf("got %+v, want a record with step 3 and no value", got)
	}
	for pattern, part := range map[string]string{
		`step (?P<step>\d+`:        "missing",
		`step (?P<stepp>\d+)`:      "stepp",
		`loss (?P<loss>[\d.]+)`:    "step",
		`(\d+)`:                    "step",
		`(?P<epoch>\d)(?P<foo>\d)`: "foo",
	} {
		if _, err := New([]string{pattern}, false); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("pattern %q: got error %v, want one that contains %q", pattern, err, part)
		}
	}
}

// TestParseJSON checks which JSON lines are metrics.
func TestParseJSON(t *testing.T) {
	p, err := New(nil, false)
	if err != nil {
		t.Fatal(err)
	}
	var all []metrics.Record
	for _, line := range []string{
		`{"step": 10, "steps": 100, "epoch": 0.5, "loss": 2.5, "lr": 0.1, "samples_per_s": 64}`,
		`{"step": 10, "loss": 2.4}`,
		`{"loss": 2}`, `{"step": -1}`, `[]`, `not JSON`, `{"step": 1e300}`,
		`{"step": 20, "loss": "NaN"}`,
		`{"step": 25, "loss": -Infinity, "lr": NaN, "note": "\" NaN"}`, // as Python writes it
		`{"kind": "eval", "step": 20, "loss": 1.5, "accuracy": 0.75}`,
		`{"step": 30, "eval_loss": 1.25}`,
	} {
		all = append(all, p.ParseJSON(line)...)
	}
	got := summarize(all)
	if len(got) != 5 || got[0] != (summary{kind: "train", step: 10, steps: 100, loss: 2.5, lr: 0.1, samples: 64}) ||
		got[1].step != 20 || got[2].step != 25 || !math.IsInf(got[2].loss, -1) || !math.IsNaN(got[2].lr) ||
		got[3] != (summary{kind: "eval", step: 20, loss: 1.5, accuracy: 0.75}) || got[4] != (summary{kind: "eval", step: 30, loss: 1.25}) {
		t.Errorf("got %+v", got)
	}
}

// TestFollow checks that a follower returns complete lines of a growing file.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	f := Follow(func() (*os.File, error) { return os.Open(path) }, 0)
	read := func() []string {
		t.Helper()
		var lines []string
		if err := f.Read(func(l string) { lines = append(lines, l) }); err != nil {
			t.Fatal(err)
		}
		return lines
	}
	write := func(text string) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = file.WriteString(text)
		}
		if err == nil {
			err = file.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(want ...string) {
		t.Helper()
		if got := read(); !reflect.DeepEqual(got, want) {
			t.Errorf("got %.200q, want %q", got, want)
		}
	}
	want() // the file does not exist
	write("one\ntwo\rth")
	want("one", "two")
	if f.Gap() {
		t.Error("got a gap, want none")
	}
	write("ree\n")
	want("three")
	write(strings.Repeat("x", maxLine+1))
	want()
	write("end\nfour\n")
	want("four")
	// A burst of output: only its end is read.
	write(strings.Repeat("y\n", maxRead) + "five\n")
	if got := read(); len(got) == 0 || got[len(got)-1] != "five" || len(got) > maxRead || !f.Gap() {
		t.Errorf("got %d lines, gap %v, want the last 1 MiB with the line %q", len(got), f.Gap(), "five")
	}
	// A new file, shorter than the old one.
	if err := os.WriteFile(path, []byte("new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("new")
}

// FuzzLine checks that no line panics, and that records have valid positions and can be stored.
func FuzzLine(f *testing.F) {
	for _, line := range []string{"epoch 1/100  loss 57.6", "{'loss': 2.31, 'epoch': 0.12}", "Epoch 3:  45%|#| 45/100 [00:10<00:12,  4.40it/s, loss=0.1]",
		"Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.297", `{"step": 1, "loss": 2}`, "step 99999999999999999999 loss 1", "step 1e9 loss inf", "\x1b[31mstep: 1 loss: 2"} {
		f.Add(line, line)
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		p, err := New(nil, false)
		if err != nil {
			t.Fatal(err)
		}
		last := map[string]int{"train": -1, "eval": -1}
		for _, line := range []string{one, two, one} {
			for _, r := range append(p.Line(line), p.ParseJSON(line)...) {
				if r.Step <= last[r.Kind] || r.Steps < 0 || r.Epoch < 0 || r.Epochs < 0 {
					t.Errorf("invalid record %+v after step %d", r, last[r.Kind])
				}
				last[r.Kind] = r.Step
				if _, err := json.Marshal(r); err != nil {
					t.Error(err)
				}
			}
		}
	})
}
