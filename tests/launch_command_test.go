package tests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// TestWrappedScriptRunsTheSame checks that a batch script with a loop, an array, and an argument
// starts the same ranks with the same arguments after `ddpbatch init --from` has replaced its
// launch lines, and that each launch has a run.
func TestWrappedScriptRunsTheSame(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 2})
	s.write("rank.sh", `mkdir -p "out/$1" && echo "$PWD $# $*" >"out/$1/$SLURM_PROCID.$SLURM_LOCALID"`)
	s.write("own.sbatch", `#!/bin/bash
#SBATCH --job-name=own
#SBATCH --nodes=2 --ntasks-per-node=2
#SBATCH --output=own-%j.txt
ARGS=(--lr 0.1 "two words")
for seed in 1 $1; do
  srun --label --kill-on-bad-exit=1 sh rank.sh "$seed" "${ARGS[@]}" $1
done
`)
	if o := s.ddpbatch("init", "--from", "own.sbatch"); o.code != 0 || !strings.Contains(o.stdout, "job.sbatch") {
		t.Fatal(o)
	}
	bin := t.TempDir()
	if err := os.Symlink(s.program, filepath.Join(bin, "ddpbatch")); err != nil {
		t.Fatal(err)
	}
	submit := func(script string) (id, files string) {
		cmd := s.Command(t.Context(), "sbatch", "--parsable", "--wait", script, "7")
		cmd.Dir, cmd.Env = s.home, append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
		o := finish(t, cmd)
		id = strings.TrimSpace(o.stdout)
		if o.code != 0 {
			t.Fatalf("%s: %v\n%s", script, o, s.file("own-"+id+".txt"))
		}
		list, err := filepath.Glob(filepath.Join(s.home, "out/*/*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range list {
			name, err := filepath.Rel(s.home, file)
			if err != nil {
				t.Fatal(err)
			}
			files += name + ": " + s.file(name)
		}
		if err := os.RemoveAll(filepath.Join(s.home, "out")); err != nil {
			t.Fatal(err)
		}
		return id, files
	}
	_, want := submit("own.sbatch")
	if n := strings.Count(want, "\n"); n != 8 {
		t.Fatalf("the script started %d ranks, want 8:\n%s", n, want)
	}
	id, got := submit("job.sbatch")
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	for _, name := range []string{"own-" + id, "own-" + id + "-2"} {
		if o := s.ddpbatch("status", name); o.code != 0 || !strings.Contains(o.stdout, "done") {
			t.Errorf("status %s: %v", name, o)
		}
	}
}

// TestKeptScriptRunsTheSame checks that a job that runs a batch script itself, because `ddpbatch init --from`
// cannot convert it, starts the same steps as the script: several at a time, and a command in a file.
func TestKeptScriptRunsTheSame(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 2, CPUs: 2})
	s.write("rank.sh", `echo "$1: task $SLURM_PROCID of $SLURM_NTASKS on $SLURM_NNODES node, job of $2 nodes and $3 tasks" >>"steps/$1"`)
	s.write("kept.sbatch", `#!/bin/bash
#SBATCH --job-name=kept
#SBATCH --nodes=2 --ntasks-per-node=2 --time=5
#SBATCH --output=kept-%j.txt
mkdir -p steps
for part in a b; do
  srun --nodes=1 --ntasks=2 --exact sh rank.sh "$part" $SLURM_NNODES $SLURM_NTASKS &
done
wait
eval "$(cat command)"
`)
	s.write("command", "srun --ntasks=4 sh rank.sh c $SLURM_NNODES $SLURM_NTASKS\n")
	steps := func() string {
		text := s.file("steps/a") + s.file("steps/b") + s.file("steps/c")
		if err := os.RemoveAll(filepath.Join(s.home, "steps")); err != nil {
			t.Fatal(err)
		}
		lines := slices.Sorted(strings.Lines(text))
		return strings.Join(lines, "")
	}
	cmd := s.Command(t.Context(), "sbatch", "--wait", "kept.sbatch")
	cmd.Dir = s.home
	if o := finish(t, cmd); o.code != 0 {
		t.Fatal(o)
	}
	want := steps()
	if strings.Count(want, "\n") != 8 {
		t.Fatalf("the script started other tasks than 8:\n%s", want)
	}
	if o := s.ddpbatch("init", "--from", "kept.sbatch"); o.code != 0 || !strings.Contains(o.stderr, "the job runs") {
		t.Fatal(o)
	}
	s.completed(s.testAndSubmit("job.toml"))
	if got := steps(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestCommandLayout checks the layout of `ddpbatch launch -- CMD` inside an allocation, with and
// without flags.
func TestCommandLayout(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 2})
	for _, tt := range []struct{ name, flags, job, want string }{
		{name: "tasks of the job", job: "--ntasks-per-node=2", want: "4 ranks on 2 nodes"},
		{name: "one per node", want: "2 ranks on 2 nodes"},
		{name: "ntasks", flags: "--ntasks=2", job: "--ntasks-per-node=2", want: "2 ranks on 2 nodes"},
		{name: "fewer than nodes", flags: "--ntasks=1", want: "1 rank on 1 node"},
		{name: "nodes", flags: "--nodes=1 --tasks-per-node=3", job: "--ntasks-per-node=3", want: "3 ranks on 1 node"},
		{name: "one process", flags: "-n 1", want: "1 rank on 1 node"},
		{name: "srun option", flags: "--srun-option=--unbuffered", want: "2 ranks on 2 nodes"},
		{name: "uneven", flags: "--ntasks=3", job: "--ntasks-per-node=2", want: "3 ranks on 2 nodes"},
		{name: "more than tasks per node", flags: "--ntasks=5 --tasks-per-node=2", want: "--tasks-per-node is 2"},
		{name: "too many nodes", flags: "--nodes=3", want: "the job has 2 nodes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"salloc", "--quiet", "--nodes=2"}
			if tt.job != "" {
				args = append(args, tt.job)
			}
			cmd := s.Command(t.Context(), append(args, "sh", "-c", s.program+" launch "+tt.flags+" -- true")...)
			cmd.Dir = s.home
			if o := finish(t, cmd); !strings.Contains(o.stdout+o.stderr, tt.want) {
				t.Errorf("got %v, want %q", o, tt.want)
			}
		})
	}
}

// TestConvertedScriptRunsTheSame checks that the job file of a batch script starts the same ranks
// with the same arguments, directory, and environment as the script, and that the commands before
// the program have run.
func TestConvertedScriptRunsTheSame(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 2})
	s.write("rank.sh", `echo "$PWD $# $* MODE=$MODE FROM=$FROM" >"$1/$SLURM_PROCID.$SLURM_LOCALID"`)
	s.write("env.sh", "FROM=file\nexport FROM\nSUFFIX='--suffix two'\n")
	s.write("own.sbatch", `#!/bin/bash
#SBATCH --job-name=own --nodes=2 --ntasks-per-node=2
#SBATCH --output=own-%j.txt
export MODE="a b"
source env.sh
OUT=out
ARGS="--lr 0.1 --name x"
ls nothing-here
mkdir -p $OUT
LIST=("c d" "$OUT")
[ ! -e env.sh ] || LIST+=(e)
srun --label sh rank.sh $OUT $ARGS $SUFFIX --seed ${SEED:-3} --once "$(cat counter 2>/dev/null || echo 0)" "${LIST[@]}"
`)
	if o := s.ddpbatch("init", "--from", "own.sbatch"); o.code != 0 || !strings.Contains(o.stderr, "none of them changes what runs") {
		t.Fatal(o)
	}
	outputs := func() (files string) {
		list, err := filepath.Glob(filepath.Join(s.home, "out/*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range list {
			files += filepath.Base(file) + ": " + s.file("out/"+filepath.Base(file))
		}
		if err := os.RemoveAll(filepath.Join(s.home, "out")); err != nil {
			t.Fatal(err)
		}
		return files
	}
	cmd := s.Command(t.Context(), "sbatch", "--wait", "own.sbatch")
	cmd.Dir = s.home
	if o := finish(t, cmd); o.code != 0 {
		t.Fatal(o)
	}
	want := outputs()
	if n := strings.Count(want, "\n"); n != 4 {
		t.Fatalf("the script started %d ranks, want 4:\n%s", n, want)
	}
	s.completed(s.submit("job.toml"))
	if got := outputs(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s\nfrom:\n%s", got, want, s.file("job.toml"))
	}
}

// TestConvertedTorchrun checks that the workers of torchrun have the same arguments after a conversion
// in which their shells complete the command line.
func TestConvertedTorchrun(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 1})
	s.write("train.py", `import os, sys
open(f"{os.environ['OUT']}/{os.environ['RANK']}", "w").write(f"{sys.argv} {os.environ['WORLD_SIZE']} {os.path.realpath(sys.executable)} {sys.stdout.line_buffering}\n")
`)
	s.write("own.sbatch", `#!/bin/bash
#SBATCH --job-name=own --nodes=1 --ntasks=1
#SBATCH --output=own-%j.txt
export OUT=$SLURM_SUBMIT_DIR/out PATH=/usr/bin:/bin
mkdir -p $OUT
EXTRA=()
[ ! -e train.py ] || EXTRA+=(--resume "$OUT/a b")
torchrun --redirects 9:1 --tee 9:1 --nproc_per_node=2 train.py --out "$OUT/x" --count $(cat train.py | wc -l) "${EXTRA[@]}"
`)
	outputs := func() string {
		text := s.file("out/0") + s.file("out/1")
		if err := os.RemoveAll(filepath.Join(s.home, "out")); err != nil {
			t.Fatal(err)
		}
		return text
	}
	cmd := s.Command(t.Context(), "sbatch", "--parsable", "--wait", "own.sbatch")
	cmd.Dir = s.home
	if o := finish(t, cmd); o.code != 0 {
		t.Fatalf("%v\n%s", o, s.file("own-"+strings.TrimSpace(o.stdout)+".txt"))
	}
	want := outputs()
	if o := s.ddpbatch("init", "--from", "own.sbatch"); o.code != 0 || !strings.Contains(o.stderr, "none of them changes what runs") {
		t.Fatal(o)
	}
	job := s.file("job.toml")
	// Debian's torchrun 1.13 needs these options, which the conversion omits with a note.
	s.write("job.toml", strings.Replace(job, `"--no_python"`, `"--redirects", "9:1", "--tee", "9:1", "--no_python"`, 1))
	s.completed(s.submit("job.toml"))
	if got := outputs(); got != want || !strings.Contains(got, "a b") {
		t.Errorf("got:\n%s\nwant:\n%s\nfrom:\n%s", got, want, job)
	}
}
