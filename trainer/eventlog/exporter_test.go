package eventlog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer"
)

// TestExporter checks that the file of a running job follows the conventions of Prometheus,
// and that the exporter removes it at the end.
func TestExporter(t *testing.T) {
	dir := t.TempDir()
	x := NewExporter(dir, "my run/#1", "0123", "18_3", "n1")
	for _, e := range []trainer.Event{
		{Kind: trainer.Started},
		{Kind: trainer.Trained, Step: 100, Steps: 400, Epoch: 1, Loss: 0.5, LR: 0.01, SamplesPerSecond: 1000, TokensPerSecond: 64000, StepTime: 20 * time.Millisecond,
			Remaining: time.Minute, Communication: &trainer.Communication{Busy: 8 * time.Millisecond, Hidden: 0.75, Slowest: 3, Ratio: 1.5}},
		{Kind: trainer.Evaluated, Step: 100, Loss: 0.6, Accuracy: 0.875},
		{Kind: trainer.Saved, Step: 100, Took: 1500 * time.Millisecond},
	} {
		if err := x.Update(e); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "ddpbatch-my_run__1-0123.prom")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	sample := regexp.MustCompile(`^(ddpbatch_[a-z_]+)\{run="my run/#1",run_id="0123",job="18_3",host="n1"\} (\S+)$`)
	comment := regexp.MustCompile(`^# (HELP ddpbatch_[a-z_]+ [A-Z].*\.|TYPE ddpbatch_[a-z_]+ (counter|gauge))$`)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if m := sample.FindStringSubmatch(line); m != nil {
			values[m[1]] = m[2]
		} else if !comment.MatchString(line) {
			t.Errorf("line %q", line)
		}
	}
	for name, want := range map[string]string{
		"ddpbatch_train_steps_total": "100", "ddpbatch_train_planned_steps": "400", "ddpbatch_train_epoch": "1", "ddpbatch_train_loss": "0.5",
		"ddpbatch_train_learning_rate": "0.01", "ddpbatch_train_samples_per_second": "1000", "ddpbatch_train_tokens_per_second": "64000",
		"ddpbatch_train_step_duration_seconds": "0.02", "ddpbatch_train_remaining_seconds": "60", "ddpbatch_train_communication_duration_seconds": "0.008",
		"ddpbatch_train_communication_hidden_ratio": "0.75", "ddpbatch_train_slowest_rank": "3", "ddpbatch_train_slowest_rank_ratio": "1.5",
		"ddpbatch_eval_loss": "0.6", "ddpbatch_eval_accuracy_ratio": "0.875", "ddpbatch_checkpoint_step": "100", "ddpbatch_checkpoint_duration_seconds": "1.5",
	} {
		if values[name] != want {
			t.Errorf("%s is %q, want %s", name, values[name], want)
		}
	}
	if len(values) != 19 { // the metrics above and two timestamps
		t.Errorf("%d figures: %v", len(values), values)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the run: %v", err)
	}
	none := NewExporter("", "x", "1", "", "n1")
	if err := errors.Join(none.Update(trainer.Event{Kind: trainer.Saved}), none.Close()); err != nil {
		t.Error(err)
	}
}
