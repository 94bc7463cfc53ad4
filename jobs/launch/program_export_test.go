package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// TestExporterIgnoresReplacedDirectory checks that event files go to the held run directory, and
// that the file for Prometheus has the newest values and disappears.
func TestExporterIgnoresReplacedDirectory(t *testing.T) {
	dir := newRun(t)
	held, release, err := dir.Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	moved, other, prom := dir.Path+"-moved", t.TempDir(), t.TempDir()
	if err := os.Rename(dir.Path, moved); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, dir.Path); err != nil {
		t.Fatal(err)
	}
	job := &jobs.Job{Name: "t", Command: &jobs.Command{}}
	job.Log.Prometheus = jobs.Text(prom)
	x := newProgramExporter(Options{Dir: held, Job: job, Say: func(line string) { t.Error(line) }}, "ab12")
	x.write(metrics.Record{Kind: "train", Step: 7, Loss: metrics.NewNumber(0.5), Time: time.Unix(1, 0)})
	x.write(metrics.Record{Kind: "eval", Step: 7, Accuracy: metrics.NewNumber(0.25), Time: time.Unix(1, 0)})
	text, err := os.ReadFile(filepath.Join(prom, "ddpbatch-t-ab12.prom"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ddpbatch_train_steps_total{", "} 7\n", "ddpbatch_train_loss{", "} 0.5\n", "ddpbatch_eval_accuracy_ratio{", "} 0.25\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "samples_per_second") {
		t.Error("a value that the program did not report")
	}
	x.close()
	if left, _ := os.ReadDir(prom); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if files, _ := filepath.Glob(filepath.Join(moved, "tensorboard", "events.*")); len(files) != 1 {
		t.Errorf("got %q, want one event file in the held directory", files)
	}
	if files, _ := os.ReadDir(other); len(files) != 0 {
		t.Errorf("files in the directory that took the path: %v", files)
	}
}
