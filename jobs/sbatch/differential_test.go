package sbatch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/templates"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// standIns are the commands that record their calls instead of running.
var standIns = strings.Fields(`srun mpirun mpiexec singularity apptainer shifter torchrun python python3 accelerate deepspeed ddpbatch scontrol nvidia-smi nproc shuf
	pip pip3 git wandb rsync tar wget curl cp mv rm ln mkdir touch unzip sbatch tensorboard uv poetry horovodrun ray numactl nnUNet_train rocm-smi virtualenv seff sacct docker gpustat vllm ibrun julia Rscript jupyter`)

// TestDifferential runs each script of the corpus under bash, with stand-ins that record what is
// called. It runs the converted job with the same stand-ins. Programs, arguments, directories,
// environment, and number of copies must be equal. Otherwise, the conversion must have a note
// that says that it changes what runs, and the wrapped script, if there is one, must be equal.
func TestDifferential(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	files, err := filepath.Glob("testdata/differential/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	d := newDifferential(t, bash)
	var verdicts []string
	for _, file := range files {
		archive, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq("\n"+string(archive), "\n-- ") {
			name, script, found := strings.Cut(part, " --\n")
			if !found {
				continue // the comment before the first script
			}
			verdict := "failed"
			name, args, _ := strings.Cut(name, " ")
			t.Run(name, func(t *testing.T) { verdict = d.compare(t, name, []byte(script+"\n"), strings.Fields(args)) })
			verdicts = append(verdicts, name+": "+verdict)
		}
	}
	const minScripts = 150
	if len(verdicts) < minScripts {
		t.Errorf("the corpus has %d scripts, want at least %d", len(verdicts), minScripts)
	}
	slices.Sort(verdicts)
	text := strings.Join(verdicts, "\n") + "\n"
	const golden = "testdata/differential/verdicts.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || text != string(want) {
		t.Errorf("verdicts differ (%v):\n%s\n(go test ./jobs/sbatch -update rewrites them)", err, diffLines(string(want), text))
	}
}

// diffLines returns the lines that only one of two texts has.
func diffLines(want, got string) string {
	var b strings.Builder
	a, c := strings.Split(want, "\n"), strings.Split(got, "\n")
	for _, line := range a {
		if !slices.Contains(c, line) {
			b.WriteString("- " + line + "\n")
		}
	}
	for _, line := range c {
		if !slices.Contains(a, line) {
			b.WriteString("+ " + line + "\n")
		}
	}
	return b.String()
}

// A differential runs scripts with stand-ins.
type differential struct {
	bash, bin, functions string
	site                 *sites.Profile
	original             []byte // script that is compared
}

func newDifferential(t *testing.T, bash string) *differential {
	t.Helper()
	d := &differential{bash: bash, bin: t.TempDir()}
	source, err := os.ReadFile("testdata/differential/standin")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.bin, "standin"), source, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range standIns {
		if err := os.Symlink("standin", filepath.Join(d.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	if d.functions, err = filepath.Abs("testdata/differential/functions"); err != nil {
		t.Fatal(err)
	}
	if d.site, err = (sites.Finder{}).Find("generic", ""); err != nil {
		t.Fatal(err)
	}
	return d
}

// originalName is the name of the file with the script that a job may run.
const originalName = "original.sh"

// compare returns the result for a script with arguments: "equal", "kept" if the job runs the script itself, "wrapped", or
// "told".
func (d *differential) compare(t *testing.T, name string, src []byte, args []string) string {
	options := testOptions
	options.Args, options.Path = args, originalName
	d.original = src
	result, err := Read(name, src, options)
	if err != nil {
		t.Fatal(err)
	}
	job, err := jobs.Parse("job.toml", result.TOML)
	if err != nil {
		t.Fatalf("%v\n%s", err, result.TOML)
	}
	env := directives(src)
	if env["SLURM_JOB_NAME"] == "" {
		env["SLURM_JOB_NAME"] = name // Slurm's default
	}
	want := d.run(t, src, "", env, args...)
	fromJob := d.runJob(t, job)
	if concurrent.Match(src) || concurrent.Match(result.TOML) {
		want, fromJob = sortLines(want), sortLines(fromJob)
	}
	for _, n := range result.Notes {
		if n.Reason != exportedReason {
			continue
		}
		for name := range strings.SplitSeq(n.Text, ", ") { // mentioned
			variable := regexp.MustCompile(`(env=|;)` + regexp.QuoteMeta(name[1:]) + `=[^;]*;`)
			fromJob = variable.ReplaceAllString(fromJob, "$1")
		}
	}
	show := func(kind, got string) {
		t.Errorf("the %s differs without a note.\nscript:\n%s\nrecorded:\n%s\n%s:\n%s\nrecorded:\n%s\nnotes: %+v", kind, src, want, kind, result.TOML, got, result.Notes)
	}
	if result.Changes() == 0 {
		if fromJob != want {
			show("job file", fromJob)
			return "failed"
		}
		if slices.ContainsFunc(job.Command.Argv, func(a jobs.Text) bool { return filepath.Base(string(a)) == originalName }) {
			return "kept"
		}
		return "equal"
	}
	if result.Script == nil {
		return "told"
	}
	got := d.run(t, result.Script, "", env, args...)
	if concurrent.Match(src) {
		got = sortLines(got)
	}
	if got != want {
		t.Errorf("the wrapped script differs:\n%s\nrecorded:\n%s\nwant:\n%s", result.Script, got, want)
		return "failed"
	}
	return "wrapped"
}

// runJob runs the batch script of a job.
func (d *differential) runJob(t *testing.T, job *jobs.Job) string {
	t.Helper()
	if job.Sweep != nil {
		job = job.Sweep.Trials[0].Job
	}
	d.site.Apply(job)
	script, err := templates.Render(templates.Input{Job: job, Binary: filepath.Join(d.bin, "ddpbatch"), RunDir: "/home/ada/runs/x", Site: d.site})
	if err != nil {
		t.Fatal(err)
	}
	env := directives(script)
	if job.Setup.ArrayTask != nil {
		env["SLURM_ARRAY_TASK_ID"] = strconv.Itoa(*job.Setup.ArrayTask)
	}
	return d.run(t, script, plan(job), env)
}

// plan returns shell code that does what the launcher does for one rank.
func plan(job *jobs.Job) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	task := ""
	if job.Setup.ArrayTask != nil {
		task = strconv.Itoa(*job.Setup.ArrayTask)
		line("export SLURM_ARRAY_TASK_ID=%s", task)
	}
	line("cd \"$SANDBOX/home/ada/project\"")
	if v := string(job.Setup.Venv); v != "" {
		line("source %s/bin/activate", quoteWord(v))
	}
	if w := string(job.Command.Workdir); w != "" {
		line("cd %s", quoteWord(w))
	}
	for name, value := range job.Setup.Env {
		line("export %s=%s", name, quoteWord(string(value)))
	}
	line("export MASTER_ADDR=node0 MASTER_PORT=29500")
	nodes, copies := job.Slurm.Nodes, job.Ranks()
	if job.RunsOnce() {
		nodes = 1 // of the process
	}
	var argv []string
	for _, a := range job.Command.Argv {
		word := quoteWord(strings.ReplaceAll(string(a), "{array_task}", task))
		if word == "/home/ada/project/"+originalName {
			word = `"$SANDBOX"` + word
		}
		argv = append(argv, word)
	}
	if job.Command.Launcher == jobs.LauncherTorchrun {
		argv = append([]string{"torchrun", "--nproc_per_node", strconv.Itoa(job.TasksPerNode())}, argv...)
		copies = nodes
	}
	if c := job.Setup.Container; c.Image != "" {
		var options, mounts []string
		for _, o := range c.Options {
			options = append(options, quoteWord(string(o)))
		}
		for _, m := range c.Mounts {
			mounts = append(mounts, string(m))
		}
		switch c.Runtime {
		case jobs.ContainerPyxis:
			container := "pyxis " + string(c.Image)
			if len(mounts) > 0 {
				container += " " + strings.Join(mounts, " ")
			}
			line("export CONTAINER=%s", quoteWord(strings.Join(append([]string{container}, options...), " ")))
		case jobs.ContainerShifter:
			argv = slices.Concat([]string{"shifter", "--image=" + quoteWord(string(c.Image))}, options, argv)
		default:
			for _, m := range mounts {
				options = append(options, "--bind", quoteWord(m))
			}
			argv = slices.Concat([]string{string(c.Runtime), "exec"}, options, []string{quoteWord(string(c.Image))}, argv)
		}
	}
	line("copies=%d nodes=%d", copies, nodes)
	if job.RunsOnce() { // with the variables of the batch script
		line("export COPIES=$copies NODES=$nodes")
		line("%s", strings.Join(argv, " "))
	} else {
		line("start %s", strings.Join(argv, " "))
	}
	return b.String()
}

// directives returns the variables that Slurm sets for a script.
func directives(src []byte) map[string]string {
	env := map[string]string{"SLURM_JOB_ID": "42", "SLURM_JOBID": "42", "SLURM_JOB_NODELIST": "node[0-3]", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
	number := func(names string) string {
		m := regexp.MustCompile(`(?m)^#SBATCH(?:.*\s)?(?:` + names + `)[= ]*(?:gpu:)?(?:[A-Za-z0-9_]+:)?([0-9]+)`).FindSubmatch(src)
		if m == nil {
			return ""
		}
		return string(m[1])
	}
	nodes, tasks, per := number("--nodes|-N"), number("--ntasks|-n"), number("--ntasks-per-node|--tasks-per-node")
	atoi := func(s string) int { n, _ := strconv.Atoi(s); return n }
	if nodes == "" {
		nodes = "1"
		if tasks != "" && per != "" {
			nodes = strconv.Itoa((atoi(tasks) + atoi(per) - 1) / atoi(per))
		}
	}
	if tasks == "" && per != "" {
		tasks = strconv.Itoa(atoi(nodes) * atoi(per))
	}
	env["SLURM_NNODES"], env["SLURM_JOB_NUM_NODES"] = nodes, nodes
	for name, value := range map[string]string{"SLURM_NTASKS": tasks, "SLURM_NTASKS_PER_NODE": per, "SLURM_CPUS_PER_TASK": number("--cpus-per-task|-c"), "SLURM_NTASKS_PER_GPU": number("--ntasks-per-gpu"),
		"SLURM_GPUS_ON_NODE": number("--gpus-per-node|--gres|--gpus|-G"), "SLURM_ARRAY_TASK_ID": number("--array|-a")} {
		if value != "" {
			env[name] = value
		}
	}
	if m := regexp.MustCompile(`(?m)^#SBATCH.*--array=(\S+)`).FindSubmatch(src); m != nil {
		if indices, _, err := jobs.ArrayRange(m[1]).Parse(); err == nil {
			env["SLURM_ARRAY_TASK_MIN"], env["SLURM_ARRAY_TASK_MAX"] = strconv.Itoa(indices[0]), strconv.Itoa(indices[len(indices)-1])
		}
	}
	if m := regexp.MustCompile(`(?m)^#SBATCH.*(?:--job-name=|-J )(\S+)`).FindSubmatch(src); m != nil {
		env["SLURM_JOB_NAME"] = string(m[1])
	}
	return env
}

// run runs a script with stand-ins and returns the record of its calls.
func (d *differential) run(t *testing.T, script []byte, plan string, env map[string]string, args ...string) string {
	t.Helper()
	sandbox := t.TempDir()
	project := filepath.Join(sandbox, "home/ada/project")
	for _, dir := range []string{"conf", "bin"} {
		if err := os.MkdirAll(filepath.Join(project, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"env.sh": "FROM_FILE=\"--from-file 1\"\nexport EXPORTED_BY_FILE=yes\n", "conf/env.sh": "export EXPORTED_BY_FILE=yes\n", "params.txt": "--lr 0.1\n--lr 0.2\n--lr 0.3\n",
	} {
		if err := os.WriteFile(filepath.Join(project, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"run.sh", "train.py", "bin/solver", "solver"} {
		if err := os.Symlink(filepath.Join(d.bin, "standin"), filepath.Join(project, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(project, originalName), d.original, 0o600); err != nil {
		t.Fatal(err)
	}
	file, planFile, record := filepath.Join(sandbox, "script"), filepath.Join(sandbox, "plan"), filepath.Join(sandbox, "record")
	var profile []byte // the stand-ins record a login shell like commands that read its files
	if first, _, _ := strings.Cut(string(script), "\n"); isLoginShell(strings.Fields(first)) {
		profile = []byte("source /etc/profile\n")
	}
	for name, text := range map[string][]byte{file: script, planFile: []byte(plan), record: profile} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.bash, slices.Concat(shellOptions(script), []string{file}, args)...)
	cmd.Dir = project
	if m := regexp.MustCompile(`(?m)^#SBATCH (?:--chdir=|-D )(\S+)`).FindSubmatch(script); m != nil {
		cmd.Dir = filepath.Join(project, string(m[1]))
		if filepath.IsAbs(string(m[1])) {
			cmd.Dir = filepath.Join(sandbox, string(m[1]))
		}
		if err := os.MkdirAll(cmd.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Env = []string{"PATH=" + d.bin + ":/usr/bin:/bin", "HOME=" + sandbox + "/home/ada", "USER=ada", "LOGNAME=ada", "SCRATCH=/scratch/ada", "RECORD=" + record, "SANDBOX=" + sandbox,
		"PLAN=" + planFile, "BASH_ENV=" + d.functions, "SLURM_SUBMIT_DIR=" + project}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.WaitDelay = time.Minute
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	processes, inherited, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer processes.Close()
	cmd.ExtraFiles = []*os.File{inherited}
	_ = cmd.Run() // the exit code of a script does not matter
	inherited.Close()
	if err := processes.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(processes); err != nil { // background processes have ended at its end
		t.Fatal(err)
	}
	got, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("output: %s", output.Bytes())
	return normalize(strings.ReplaceAll(string(got)+writtenFiles(t, sandbox), sandbox, ""))
}

// shellOptions returns the options of the shell in the first line of a script. It omits -l and --login, because a
// login shell resets PATH.
func shellOptions(script []byte) []string {
	first, _, _ := strings.Cut(string(script), "\n")
	fields := strings.Fields(first)
	shell := slices.IndexFunc(fields, func(w string) bool { return strings.HasSuffix(w, "sh") }) // behind env, for example
	return slices.DeleteFunc(fields[shell+1:], func(o string) bool { return o == "-l" || o == "--login" })
}

// sortLines sorts the lines of a record.
func sortLines(record string) string {
	lines := strings.SplitAfter(record, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// writtenFiles returns a line for each file that a script has written, with its content. Files with
// output of the program are empty, because the stand-ins print nothing.
func writtenFiles(t *testing.T, sandbox string) string {
	t.Helper()
	given := []string{"script", "plan", "record", "home/ada/project/env.sh", "home/ada/project/conf/env.sh", "home/ada/project/params.txt", "home/ada/project/" + originalName}
	var b strings.Builder
	err := filepath.WalkDir(sandbox, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(sandbox, path)
		if err != nil || slices.Contains(given, name) {
			return err
		}
		content, err := os.ReadFile(path)
		if len(content) > 0 {
			fmt.Fprintf(&b, "file %s %q\n", name, content)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// concurrent matches scripts that run several commands at the same time, in any order.
var concurrent = regexp.MustCompile(`[^&>]&(?:\n| done)| \| `)

// normalize removes differences that have no effect on a job.
func normalize(record string) string {
	record = regexp.MustCompile(`(?m)^(venv) /home/ada/project/`).ReplaceAllString(record, "$1 ")
	record = regexp.MustCompile(`(?m)^(?:conda deactivate|ray .* args=\[stop\] .*)\n\z`).ReplaceAllString(record, "") // after the program
	return record
}
