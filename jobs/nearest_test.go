package jobs

import "testing"

func TestNearestByOtherNames(t *testing.T) {
	names := []string{"batch", "epochs", "lr", "mem", "tasks_per_node", "time"}
	for word, want := range map[string]string{
		"learning_rate": "lr", "batch_size": "batch", "memory": "mem", "epoch": "epochs", "Tasks-Per-Node": "tasks_per_node",
		"tiem": "time", "zzz": "", "": "", "queue": "",
	} {
		if got := nearest(word, names); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
