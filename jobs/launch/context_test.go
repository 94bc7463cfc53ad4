package launch

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// newRun returns the directory of a new run with a [command] job.
func newRun(t *testing.T) rundir.Dir {
	t.Helper()
	dir, err := rundir.Create(filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Prepare("t", dir.Path, "v", []byte("name = \"t\"\n[command]\nargv = [\"true\"]\n")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestProgramContext checks the variables of the first and of a later attempt.
func TestProgramContext(t *testing.T) {
	dir := newRun(t)
	outside := filepath.Join(t.TempDir(), "a", "b")
	for _, tt := range []struct {
		name, checkpointDir, want string
	}{
		{"default", "", dir.ProgramCheckpoints()},
		{"configured", outside + "/{run_id}", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			record, err := dir.ReadRecord()
			if err != nil {
				t.Fatal(err)
			}
			want := tt.want
			if want == "" {
				want = filepath.Join(outside, record.Run)
			}
			o := Options{Dir: dir, Job: &jobs.Job{Command: &jobs.Command{CheckpointDir: jobs.Text(tt.checkpointDir)}}}
			if err := dir.WriteStopFile("old"); err != nil {
				t.Fatal(err)
			}
			for _, resume := range []string{"0", "1"} {
				environ, err := programContext(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				for name, value := range map[string]string{programRunDir: dir.Path, programRunID: record.Run, programCheckpoints: want, programResume: resume, programRestarts: "0"} {
					if got, _ := lookupIn(environ)(name); got != value {
						t.Errorf("%s: got %q, want %q", name, got, value)
					}
				}
				if _, set := lookupIn(environ)(programDeadline); set {
					t.Error("a deadline without a time limit")
				}
				if _, err := os.Stat(dir.StopFile()); err == nil {
					t.Error("the stop file of an earlier attempt exists")
				}
				if err := os.WriteFile(filepath.Join(want, "step-1.pt"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	// A directory that cannot be created is an error with a hint.
	o := Options{Dir: dir, Job: &jobs.Job{Command: &jobs.Command{CheckpointDir: jobs.Text(filepath.Join(dir.Spec(), "x"))}}}
	if _, err := programContext(t.Context(), o); err == nil || !strings.Contains(err.Error(), "create the checkpoint directory") {
		t.Errorf("checkpoint directory in a file: %v", err)
	}
}

// TestCorruptRecord checks that no attempt starts without the ID of the run, which is part of paths.
func TestCorruptRecord(t *testing.T) {
	dir := newRun(t)
	if err := os.WriteFile(dir.Record(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{Dir: dir, Job: &jobs.Job{Command: &jobs.Command{}}, Site: generic(), Processes: 1}
	if _, err := newAttempt(t.Context(), o, 1, nil); err == nil || !strings.Contains(err.Error(), "read run record") {
		t.Errorf("newAttempt: got %v", err)
	}
	if _, err := programContext(t.Context(), o); err == nil || !strings.Contains(err.Error(), "read run record") {
		t.Errorf("programContext: got %v", err)
	}
}

// TestSetContext checks the variables of single ranks.
func TestSetContext(t *testing.T) {
	dir := newRun(t)
	const id = "0123456789abcdef0123456789abcdef"
	if err := os.WriteFile(dir.TrackerFile("mlflow"), []byte(id+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	record, err := dir.ReadRecord()
	if err != nil {
		t.Fatal(err)
	}
	launched := []string{LauncherVariable + "=127.0.0.1:1", envSecret + "=secret", envReportKey + "=secret", programRunID + "=ab12", programRestarts + "=2", programStopFile + "=/stop"}
	both := []jobs.Tracker{jobs.TrackerWandB, jobs.TrackerMLflow}
	for _, tt := range []struct {
		name     string
		info     RankInfo
		command  jobs.Command
		environ  []string
		given    []string
		want     []string
		unwanted []string // names
	}{
		{name: "rank 0", info: RankInfo{WorldSize: 4, Nodes: 2}, environ: launched, command: jobs.Command{Tracking: both},
			want: []string{"DDPBATCH_ATTEMPT=3", "DDPBATCH_INTERFACE=eth1", "DDPBATCH_ADDRESS=10.0.0.1", "DDPBATCH_STOP_FILE=/stop", "TORCHELASTIC_RUN_ID=ab12",
				"TORCH_NCCL_DEBUG_INFO_TEMP_FILE=" + dir.TracePrefix(), "TORCH_FR_DUMP_TEMP_FILE=" + dir.TracePrefix(),
				"TORCHELASTIC_RESTART_COUNT=2", "GROUP_WORLD_SIZE=2", "ROLE_RANK=0", "ROLE_WORLD_SIZE=4", "WANDB_RUN_ID=ab12", "WANDB_RESUME=allow", "MLFLOW_RUN_ID=" + id},
			unwanted: []string{envSecret, envReportKey, LauncherVariable, "TORCHELASTIC_USE_AGENT_STORE"}},
		{name: "rank 3", info: RankInfo{Rank: 3, WorldSize: 4, NodeRank: 1, Nodes: 2}, environ: launched, command: jobs.Command{Tracking: both},
			want: []string{"ROLE_RANK=3", "WANDB_RUN_ID=ab12-rank-3"}, unwanted: []string{"MLFLOW_RUN_ID"}},
		{name: "node 1 with torchrun", info: RankInfo{Rank: 1, WorldSize: 2, NodeRank: 1, Nodes: 2}, environ: launched,
			command: jobs.Command{Tracking: both, Launcher: jobs.LauncherTorchrun},
			want:    []string{"DDPBATCH_ATTEMPT=3", "WANDB_RUN_ID=ab12-node-1"}, unwanted: []string{"TORCHELASTIC_RUN_ID", "ROLE_RANK"}},
		{name: "values of the user", info: RankInfo{WorldSize: 1, Nodes: 1}, environ: launched, given: []string{"WANDB_RUN_ID=mine", "MLFLOW_RUN_ID=mine"},
			command: jobs.Command{Tracking: both}, want: []string{"WANDB_RUN_ID=mine", "MLFLOW_RUN_ID=mine"}},
		{name: "trace file of the user for PyTorch 2.9", info: RankInfo{WorldSize: 1, Nodes: 1}, environ: launched, given: []string{"TORCH_FR_DUMP_TEMP_FILE=/mine"},
			want: []string{"TORCH_FR_DUMP_TEMP_FILE=/mine", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/mine"}},
		{name: "trace file of the user for PyTorch 2.6", info: RankInfo{WorldSize: 1, Nodes: 1}, environ: launched, given: []string{"TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/mine"},
			want: []string{"TORCH_FR_DUMP_TEMP_FILE=/mine", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/mine"}},
		{name: "two trace files of the user", info: RankInfo{WorldSize: 1, Nodes: 1}, environ: launched, given: []string{"TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/old", "TORCH_FR_DUMP_TEMP_FILE=/new"},
			want: []string{"TORCH_FR_DUMP_TEMP_FILE=/new", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/old"}},
		{name: "no tracking", info: RankInfo{WorldSize: 1, Nodes: 1}, environ: launched, want: []string{"DDPBATCH_ATTEMPT=3"}, unwanted: []string{"WANDB_RUN_ID", "MLFLOW_RUN_ID"}},
		{name: "without launcher", info: RankInfo{WorldSize: 1, Nodes: 1},
			want: []string{"DDPBATCH_ATTEMPT=1", "DDPBATCH_RUN_DIR=" + dir.Path, "DDPBATCH_CHECKPOINT_DIR=" + dir.ProgramCheckpoints(), "TORCHELASTIC_RUN_ID=" + record.Run, "DDPBATCH_RUN_ID=" + record.Run}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &Rank{Info: tt.info, dir: dir, job: &jobs.Job{Command: &tt.command}, say: func(line string) { t.Error(line) }}
			r.Choice.Interface, r.Choice.Addr = "eth1", netip.MustParseAddr("10.0.0.1")
			got := slices.Clone(tt.given)
			set := func(name, value string) { got = append(removeVars(got, name), name+"="+value) }
			if err := r.setContext(set, lookupIn(tt.environ), lookupIn(tt.given)); err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if !slices.Contains(got, want) {
					t.Errorf("no %s in %q", want, got)
				}
			}
			for _, name := range tt.unwanted {
				if value, set := lookupIn(got)(name); set {
					t.Errorf("%s=%s is set", name, value)
				}
			}
		})
	}
	// The directory of the heartbeat exists even without a launcher.
	command := jobs.Command{}
	command.Watch.Heartbeat = jobs.Duration(time.Minute)
	beat := ""
	ranked := &Rank{Info: RankInfo{WorldSize: 1, Nodes: 1}, dir: dir, job: &jobs.Job{Command: &command}, say: func(line string) { t.Error(line) }}
	err = ranked.setContext(func(name, value string) {
		if name == programHeartbeat {
			beat = value
		}
	}, lookupIn(nil), lookupIn(nil))
	if err == nil {
		err = os.WriteFile(beat, nil, 0o600)
	}
	if err != nil {
		t.Errorf("write the heartbeat: %v", err)
	}
	// A file without an ID is not used.
	if err := os.WriteFile(dir.TrackerFile("mlflow"), []byte("a b"), 0o600); err != nil {
		t.Fatal(err)
	}
	said := ""
	r := &Rank{dir: dir, job: &jobs.Job{Command: &jobs.Command{Tracking: both}}, say: func(line string) { said += line }}
	r.setTracking(func(name, _ string) {
		if name == "MLFLOW_RUN_ID" {
			t.Error("MLFLOW_RUN_ID is set")
		}
	}, lookupIn(nil), "")
	if !strings.Contains(said, "does not contain an ID") {
		t.Errorf("said %q", said)
	}
}
