package templates

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/templates/sites"
	"mvdan.cc/sh/v3/syntax"
)

var update = flag.Bool("update", false, "rewrite golden files")

// full returns a job that uses every line of the template.
func full() *jobs.Job {
	return &jobs.Job{
		Name: "full house #1", Site: "generic",
		Slurm: jobs.Slurm{
			Nodes: 4, TasksPerNode: 8, GPUsPerNode: 8, CPUsPerTask: 6, Time: "1-12:00:00", Memory: "480G",
			Partition: "gpu,gpu-long", Account: "proj@gpu", QOS: "normal", Reservation: "maint",
			Gres: "nvme:1,shard:2", Exclude: "n[1-3],n7", NodeList: "n[4-9]", Hint: "nomultithread", Licenses: "a:1,b@srv:2",
			Switches: "1@00:30:00", Segment: 2, Begin: "now+1hour", Nice: -5, WCKey: "w#1", Comment: "not in the script",
			OpenMode: jobs.OpenModeTruncate, Requeue: new(false), Export: jobs.ExportNone,
			Mail:       &jobs.Mail{User: "a@b", Events: []jobs.MailEvent{"end", "time_limit_80"}},
			Options:    []jobs.Option{"--tmp=10G", "--extra=a \"b\" #c 'd' \\", "--contiguous"},
			Constraint: "[rack1|rack2]&ib", Exclusive: true, SignalBeforeEnd: jobs.Duration(150500 * time.Millisecond),
		},
		Setup: jobs.Setup{
			Lines:   []jobs.Text{`export CACHE="/tmp/$SLURM_JOB_ID"`, "ulimit -n 65536"},
			Modules: []jobs.Word{"gcc/12.3", "cuda@12.4", "it's"}, Conda: "/envs/my env",
			Env: map[jobs.EnvName]jobs.Text{"HF_TOKEN": "canary"},
		},
		Train:   &jobs.Train{},
		Restart: jobs.Restart{SpareNodes: 2},
	}
}

func bare() *jobs.Job {
	return &jobs.Job{Name: "bare", Site: "generic", Slurm: jobs.Slurm{Nodes: 1, TasksPerNode: 1, CPUsPerTask: 1}}
}

// generic returns a profile without requirements.
func generic(t testing.TB) *sites.Profile { return profile(t, "generic") }

func profile(t testing.TB, name string) *sites.Profile {
	t.Helper()
	p, err := sites.Finder{}.Find(name, "")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func render(t *testing.T, job *jobs.Job) []byte {
	t.Helper()
	script, err := Render(Input{Job: job, Site: generic(t), Binary: "/opt/ddpbatch/bin/ddpbatch", RunDir: "/scratch/runs/" + string(job.Name)})
	if err != nil {
		t.Fatal(err)
	}
	return script
}

// TestGolden compares the scripts of the examples and of constructed jobs with golden files.
func TestGolden(t *testing.T) {
	golden := map[string]*jobs.Job{"all-lines": full(), "no-options": bare()}
	examples, err := filepath.Glob("../jobs/examples/*.toml")
	if err != nil || len(examples) == 0 {
		t.Fatalf("no examples (%v)", err)
	}
	for _, path := range examples {
		job, err := jobs.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".toml")
		if golden[name] != nil {
			t.Fatalf("the example %s is named like a golden job of this test", name)
		}
		golden[name] = job
	}
	steps, err := jobs.Load("../jobs/testdata/good/setup-steps.toml")
	if err != nil {
		t.Fatal(err)
	}
	golden["setup-steps"] = steps
	for _, name := range []string{"run-once", "share-gpus", "components", "ranks-per-node", "groups"} {
		if golden[name], err = jobs.Load("../jobs/testdata/good/" + name + ".toml"); err != nil {
			t.Fatal(err)
		}
	}
	for name, job := range golden {
		t.Run(name, func(t *testing.T) {
			script := render(t, job)
			if again := render(t, job); !bytes.Equal(script, again) {
				t.Errorf("rendered twice:\n%s\n%s", script, again)
			}
			checkShell(t, script)
			file := filepath.Join("testdata", name+".sbatch")
			if *update {
				if err := os.WriteFile(file, script, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v (go test ./templates -update writes it)", err)
			}
			if !bytes.Equal(script, want) {
				t.Errorf("%s differs (go test ./templates -update rewrites it):\ngot\n%s\nwant\n%s", file, script, want)
			}
		})
	}
	// Every golden file must have a job, so renamed examples leave no file behind.
	files, err := filepath.Glob("testdata/*.sbatch")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if golden[strings.TrimSuffix(filepath.Base(file), ".sbatch")] == nil {
			t.Errorf("%s belongs to no job", file)
		}
	}
}

// checkShell parses the script with two bash parsers.
func checkShell(t *testing.T, script []byte) {
	t.Helper()
	if _, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(bytes.NewReader(script), "script"); err != nil {
		t.Errorf("%v in\n%s", err, script)
	}
	cmd := exec.Command("bash", "-n")
	cmd.Stdin = bytes.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("bash -n: %v: %s", err, out)
	}
}

// TestDirectives checks the options that sbatch reads from the script of a full job.
func TestDirectives(t *testing.T) {
	got, err := sbatchArgs(string(render(t, full())))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"--job-name=full house #1", "--nodes=6", "--ntasks-per-node=8", "--cpus-per-task=6", "--gres=gpu:8,nvme:1,shard:2", "--mem=480G",
		"--time=1-12:00:00", "--partition=gpu,gpu-long", "--account=proj@gpu", "--qos=normal", "--reservation=maint",
		"--constraint=[rack1|rack2]&ib", "--exclusive", "--exclude=n[1-3],n7", "--nodelist=n[4-9]", "--hint=nomultithread", "--licenses=a:1,b@srv:2",
		"--switches=1@00:30:00", "--segment=2", "--begin=now+1hour", "--nice=-5", "--wckey=w#1", "--mail-user=a@b", "--mail-type=END,TIME_LIMIT_80",
		"--tmp=10G", "--extra=a \"b\" #c 'd' \\", "--contiguous",
		"--output=/scratch/runs/full house #1/slurm-%j.out", "--open-mode=truncate",
		"--no-requeue", "--no-kill", "--signal=B:USR1@151", "--export=NONE",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestAllCores checks that a script without a number of cores does not have the option, for ranks and
// for torchrun, in the first group and in others.
func TestAllCores(t *testing.T) {
	for _, launcher := range []jobs.Launcher{jobs.LauncherRank, jobs.LauncherTorchrun} {
		job := bare()
		job.Command = &jobs.Command{Argv: []jobs.Text{"x"}, Launcher: launcher}
		job.Slurm.TasksPerNode, job.Slurm.CPUsPerTask, job.Slurm.Exclusive = 4, jobs.AllCores, true
		text := string(render(t, job))
		if strings.Contains(text, "cpus-per-task") || !strings.Contains(text, "#SBATCH --exclusive\n") {
			t.Errorf("%s: got\n%s", launcher, text)
		}
		job.Slurm.Groups = []jobs.Group{{Nodes: 1, TasksPerNode: 2, CPUsPerTask: 3}, {Nodes: 1, TasksPerNode: 2}}
		if text = string(render(t, job)); strings.Count(text, "cpus-per-task") != 1 {
			t.Errorf("%s with groups: got\n%s", launcher, text)
		}
	}
}

// TestGPUTypesAndMemory checks the options for typed GPUs and the alternatives of --mem.
func TestGPUTypesAndMemory(t *testing.T) {
	for _, tt := range []struct {
		name  string
		slurm jobs.Slurm
		want  []string
	}{
		{"typed GPUs", jobs.Slurm{GPUsPerNode: 2, GPUType: "3g.20gb", MemoryPerGPU: "10G"}, []string{"--gres=gpu:3g.20gb:2", "--mem-per-gpu=10G"}},
		{"no GPUs", jobs.Slurm{Gres: "nvme:1", MemoryPerCPU: "2G"}, []string{"--gres=nvme:1", "--mem-per-cpu=2G"}},
	} {
		job := bare()
		tt.slurm.Nodes, tt.slurm.TasksPerNode, tt.slurm.CPUsPerTask = 1, 1, 1
		job.Slurm = tt.slurm
		args, err := sbatchArgs(string(render(t, job)))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range tt.want {
			if !slices.Contains(args, want) {
				t.Errorf("%s: %s is not in %q", tt.name, want, args)
			}
		}
	}
}

// TestOmit checks that an omitted option is missing, and that nothing else is.
func TestOmit(t *testing.T) {
	all, err := sbatchArgs(string(render(t, full())))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []jobs.Directive{"account", "constraint", "cpus-per-task", "exclusive", "export", "mem", "no-kill", "ntasks-per-node",
		"open-mode", "partition", "qos", "requeue", "reservation", "time"} {
		job := full()
		job.Slurm.Omit = []jobs.Directive{name}
		job.Setup.Lines = []jobs.Text{jobs.Text("#SBATCH --" + string(name) + "=x"), "true"} // not a directive
		script := string(render(t, job))
		if !strings.Contains(script, "\n#SBATCH --"+string(name)+"=x\ntrue\n") {
			t.Errorf("%s: a shell line is missing from\n%s", name, script)
		}
		got, err := sbatchArgs(script)
		if err != nil {
			t.Fatal(err)
		}
		want := slices.DeleteFunc(slices.Clone(all), func(arg string) bool {
			option, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			return option == string(name) || option == "no-"+string(name) || name == "time" && option == "signal"
		})
		if !slices.Equal(got, want) || len(want) == len(all) {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, want)
		}
	}
}

// TestTorchrunHasOneTaskPerNode checks that torchrun starts once per node, with the resources of
// all its ranks.
func TestTorchrunHasOneTaskPerNode(t *testing.T) {
	job := full()
	job.Train = nil
	job.Command = &jobs.Command{Argv: []jobs.Text{"train.py"}, Launcher: jobs.LauncherTorchrun}
	script := string(render(t, job))
	for _, want := range []string{"--ntasks-per-node=1\n", "--cpus-per-task=48\n", "--gres=gpu:8,nvme:1,shard:2\n"} {
		if !strings.Contains(script, want) {
			t.Errorf("%s is not in\n%s", want, script)
		}
	}
	job.Command.Launcher = jobs.LauncherRank
	if script := string(render(t, job)); !strings.Contains(script, "--ntasks-per-node=8\n") {
		t.Errorf("8 ranks per node are not in\n%s", script)
	}
}

// TestModuleFunction checks that the script defines the function module if its setup loads modules.
func TestModuleFunction(t *testing.T) {
	tests := []struct {
		name  string
		setup jobs.Setup
		want  bool
	}{
		{"no setup", jobs.Setup{}, false},
		{"modules", jobs.Setup{Modules: []jobs.Word{"gcc"}}, true},
		{"step with modules", jobs.Setup{Steps: []jobs.SetupStep{{Run: "true"}, {Modules: []jobs.Word{"gcc"}}}}, true},
		{"step with code", jobs.Setup{Steps: []jobs.SetupStep{{Run: "ml gcc"}}}, true},
		{"step without modules", jobs.Setup{Steps: []jobs.SetupStep{{Run: "true"}}}, false},
		{"step in the ranks", jobs.Setup{Steps: []jobs.SetupStep{{Modules: []jobs.Word{"gcc"}, Where: jobs.WhereInside}}}, false},
	}
	for _, tt := range tests {
		job := bare()
		job.Setup = tt.setup
		if script := string(render(t, job)); strings.Contains(script, "type module") != tt.want {
			t.Errorf("%s: want the function: %v, got\n%s", tt.name, tt.want, script)
		}
	}
}

// TestSignal checks the signal before the end of the time limit, rounded up to seconds.
func TestSignal(t *testing.T) {
	tests := []struct {
		time   jobs.WallTime
		before time.Duration
		want   string
	}{
		{"01:00:00", 120 * time.Second, "--signal=B:USR1@120\n"},
		{"01:00:00", time.Millisecond, "--signal=B:USR1@1\n"},
		{"01:00:00", time.Second, "--signal=B:USR1@1\n"},
		{"01:00:00", time.Second + 1, "--signal=B:USR1@2\n"},
		{"1-00:00:00", maxSignalSeconds * time.Second, "--signal=B:USR1@65535\n"},
		{"01:00:00", 0, ""},
		{"", 120 * time.Second, ""}, // no time limit
	}
	for _, tt := range tests {
		job := bare()
		job.Slurm.Time, job.Slurm.SignalBeforeEnd = tt.time, jobs.Duration(tt.before)
		script := string(render(t, job))
		if !strings.Contains(script, tt.want) || tt.want == "" && strings.Contains(script, "--signal") {
			t.Errorf("%q before the end of %q: want %q in\n%s", tt.before, tt.time, tt.want, script)
		}
	}
}

// TestNoVariableInScript checks that a script does not contain variables of the ranks: they may be
// secret, and other users may read a script.
func TestNoVariableInScript(t *testing.T) {
	if script := render(t, full()); bytes.Contains(script, []byte("canary")) || bytes.Contains(script, []byte("HF_TOKEN")) {
		t.Errorf("setup.env is in\n%s", script)
	}
}

// TestRenderRefuses checks that invalid inputs are rejected.
func TestRenderRefuses(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Input)
		want   string
	}{
		{"array", func(in *Input) { in.Array = "0-7 #SBATCH" }, "is not a list of array tasks"},
		{"binary", func(in *Input) { in.Binary = "bin/ddpbatch" }, `path of ddpbatch: "bin/ddpbatch" is not absolute`},
		{"run directory", func(in *Input) { in.RunDir = "runs/x" }, `run directory: "runs/x" is not absolute`},
		{"backslash", func(in *Input) { in.RunDir = `/runs/a\b` }, `run directory: "/runs/a\\b" contains a backslash`},
		{"nodes", func(in *Input) { in.Job.Slurm.Nodes = 0 }, "slurm.nodes: 0 is less than 1"},
		{"cpus", func(in *Input) { in.Job.Slurm.CPUsPerTask = 0 }, "slurm.cpus_per_task: 0 is less than 1"},
		{"signal", func(in *Input) { in.Job.Slurm.SignalBeforeEnd = jobs.Duration(24 * time.Hour) }, "86400 s exceeds Slurm's maximum of 65535 s"},
		{"module", func(in *Input) { in.Job.Setup.Modules = []jobs.Word{"--force"} }, `setup.modules: "--force" starts with a dash`},
		{"conda", func(in *Input) { in.Job.Setup.Conda = "--stack" }, `setup.conda: "--stack" starts with a dash`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := Input{Job: full(), Site: generic(t), Binary: "/bin/ddpbatch", RunDir: "/runs/x"}
			tt.change(&in)
			script, err := Render(in)
			if err == nil || !strings.Contains(err.Error(), tt.want) || script != nil {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestRenderRefusesControlCharacters tests every text of the input with every control character.
func TestRenderRefusesControlCharacters(t *testing.T) {
	fields := map[string]func(*Input, string){
		"name":              func(in *Input, v string) { in.Job.Name = jobs.Name(v) },
		"slurm.mem":         func(in *Input, v string) { in.Job.Slurm.Memory = jobs.Memory(v) },
		"slurm.time":        func(in *Input, v string) { in.Job.Slurm.Time = jobs.WallTime(v) },
		"slurm.partition":   func(in *Input, v string) { in.Job.Slurm.Partition = jobs.Word(v) },
		"slurm.account":     func(in *Input, v string) { in.Job.Slurm.Account = jobs.Word(v) },
		"slurm.qos":         func(in *Input, v string) { in.Job.Slurm.QOS = jobs.Word(v) },
		"slurm.reservation": func(in *Input, v string) { in.Job.Slurm.Reservation = jobs.Word(v) },
		"slurm.constraint":  func(in *Input, v string) { in.Job.Slurm.Constraint = jobs.Text(v) },
		"option --gres":     func(in *Input, v string) { in.Job.Slurm.Gres = jobs.Word(v) },
		"option --exclude":  func(in *Input, v string) { in.Job.Slurm.Exclude = jobs.Word(v) },
		"option --begin":    func(in *Input, v string) { in.Job.Slurm.Begin = jobs.Text(v) },
		"option --mail-user": func(in *Input, v string) {
			in.Job.Slurm.Mail = &jobs.Mail{User: jobs.Word(v), Events: []jobs.MailEvent{"end"}}
		},
		"option --tmp":     func(in *Input, v string) { in.Job.Slurm.Options = []jobs.Option{jobs.Option("--tmp=" + v)} },
		"setup.modules":    func(in *Input, v string) { in.Job.Setup.Modules = []jobs.Word{"ok", jobs.Word(v)} },
		"setup.conda":      func(in *Input, v string) { in.Job.Setup.Conda = jobs.Text(v) },
		"path of ddpbatch": func(in *Input, v string) { in.Binary = "/" + v },
		"run directory":    func(in *Input, v string) { in.RunDir = "/" + v },
	}
	for name, set := range fields {
		for _, value := range refused {
			in := Input{Job: full(), Site: generic(t), Binary: "/bin/ddpbatch", RunDir: "/runs/x"}
			set(&in, value)
			if script, err := Render(in); err == nil || !strings.Contains(err.Error(), name+": ") {
				t.Errorf("%s = %q: %v\n%s", name, value, err, script)
			}
		}
	}
}

// TestDigest checks that the script passes the digest of the submitted job. In an array, it passes
// the digest of the task's trial, and no digest for a task that was not submitted.
func TestDigest(t *testing.T) {
	in := Input{Job: bare(), Site: generic(t), Binary: "/bin/echo", RunDir: "/runs/demo"}
	for _, tt := range []struct {
		name, task string
		digest     string
		digests    []ElementDigest
		want       string
	}{
		{name: "none", want: "launch --run-dir /runs/demo\n"},
		{name: "single job", digest: "ab12", want: "launch --run-dir /runs/demo --digest ab12\n"},
		{name: "element", task: "7", digests: []ElementDigest{{0, "aa"}, {7, "bb"}}, want: "launch --run-dir /runs/demo --digest bb\n"},
		{name: "other element", task: "1", digests: []ElementDigest{{0, "aa"}, {7, "bb"}}, want: "launch --run-dir /runs/demo --digest none\n"},
		{name: "no array", digests: []ElementDigest{{0, "aa"}}, want: "launch --run-dir /runs/demo --digest none\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := in
			in.Digest, in.Digests = tt.digest, tt.digests
			script, err := Render(in)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "bash", "-s")
			cmd.Stdin = bytes.NewReader(script)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
			if tt.task != "" {
				cmd.Env = append(cmd.Env, "SLURM_ARRAY_TASK_ID="+tt.task)
			}
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != tt.want {
				t.Errorf("got %q, %v, want %q", out, err, tt.want)
			}
		})
	}
}
