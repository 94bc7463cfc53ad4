package sbatch

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// testOptions describe the surroundings of the scripts in tests.
var testOptions = Options{Home: "/home/ada", User: "ada", Dir: "/home/ada/project"}

var update = flag.Bool("update", false, "rewrite golden files")

// TestScripts converts scripts from the documentation of centers. The job files must be valid,
// and the notes must cover everything that they do not contain.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.sh")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d scripts (%v)", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".sh")
		t.Run(name, func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Read(filepath.Base(file), src, testOptions)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := jobs.Parse("job.toml", got.TOML); err != nil {
				t.Errorf("%v\n%s", err, got.TOML)
			}
			text := string(got.TOML) + "---\n"
			for _, n := range got.Notes {
				text += fmt.Sprintf("line %d: %s: %s", n.Line, n.Text, n.Reason)
				if n.Changes {
					text += " (changes what runs)"
				}
				text += "\n"
			}
			if got.Script != nil {
				text += "---\n" + string(got.Script)
			}
			golden := strings.TrimSuffix(file, ".sh") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || text != string(want) {
				t.Errorf("got:\n%s\nwant (%v):\n%s\n(go test ./jobs/sbatch -update rewrites it)", text, err, want)
			}
		})
	}
}

// TestDeepNestingDoesNotOverflowTheStack checks that nesting is limited: Go terminates a program
// whose stack exceeds 1 GB, and the program cannot recover. The results do not matter: some of
// these scripts are valid.
func TestDeepNestingDoesNotOverflowTheStack(t *testing.T) {
	for _, tt := range []struct{ opening, closing string }{
		{"$(", ")"}, {`"$(`, `)"`}, {"$((", "))"}, {"(", ")"}, {"<(", ")"}, {"`", ""}, {"${a:-", "}"},
		{"{ ", ";}"}, {"if ", ""}, {"while ", ""}, {"f() ", ""}, {"case a in a) ", ";;esac"},
	} {
		t.Run(tt.opening, func(t *testing.T) {
			for _, command := range []string{"", "srun python3 train.py ", "A="} {
				head := "#!/bin/bash\n#SBATCH -N 1\n" + command
				open := strings.Repeat(tt.opening, (maxScript-len(head))/len(tt.opening))
				n := (maxScript - len(head)) / len(tt.opening+tt.closing)
				balanced := strings.Repeat(tt.opening, n) + strings.Repeat(tt.closing, n)
				for _, nested := range []string{open, balanced} {
					_, _ = Read("deep.sh", []byte(head+nested), testOptions)
				}
			}
		})
	}
	if _, err := Read("large.sh", make([]byte, maxScript+1), testOptions); err == nil || !strings.Contains(err.Error(), "64 KiB") {
		t.Errorf("got %v, want the limit", err)
	}
}

// TestSizeIsLimited checks that scripts with many commands, or with many conditions that need another pass,
// are not converted. They would take minutes.
func TestSizeIsLimited(t *testing.T) {
	const program, branch = "srun python train.py\n", "if true; then :; else srun x; fi\n"
	for _, tt := range []struct {
		name, script string
		note         string // empty if the script is converted
	}{
		{name: "commands", script: strings.Repeat(":\n", maxCommands-1) + program},
		{name: "too many commands", script: strings.Repeat(":\n", maxCommands) + program, note: "commands"},
		{name: "conditions", script: program + strings.Repeat(branch, maxTaken)},
		{name: "too many conditions", script: program + strings.Repeat(branch, maxTaken+1), note: "condition"},
	} {
		got, err := Read("job.sh", []byte("#!/bin/bash\n#SBATCH -n 1\n"+tt.script), testOptions)
		isNoted := slices.ContainsFunc(got.Notes, func(n Note) bool { return n.Changes && strings.Contains(n.Reason, tt.note) })
		if err != nil || tt.note == "" && got.Changes() > 0 || tt.note != "" && !isNoted {
			t.Errorf("%s: got %v, %+v, want a change with %q", tt.name, err, got.Notes, tt.note)
		}
	}
}

// TestFunctionsAreFollowedToALimit checks that the reader keeps calls of a large function as code instead of
// reading the function again for each of them.
func TestFunctionsAreFollowedToALimit(t *testing.T) {
	function := "f() {\n" + strings.Repeat(":\n", maxFollowed/100) + "}\n"
	for calls, kept := range map[int]bool{5: false, 200: true} {
		got, err := Read("job.sh", []byte(function+strings.Repeat("f\n", calls)+"srun python train.py\n"), testOptions)
		if err != nil || bytes.Contains(got.TOML, []byte(`"f"`)) != kept {
			t.Errorf("%d calls: got %v, %s, want calls of the function %v", calls, err, got.TOML, kept)
		}
	}
}

// TestNotesAreNotRepeated checks that a command with many words, each of which has the same note, is examined for
// secrets only once.
func TestNotesAreNotRepeated(t *testing.T) {
	r := newReader(nil, testOptions)
	r.readShellOptions(1, "set -- a b c", []string{"--", "a", "b", "c"})
	r.readShellOptions(2, "set -- a b c", []string{"--", "a", "b", "c"})
	if len(r.notes) != 2 {
		t.Errorf("got %+v, want one note for each line", r.notes)
	}
}

// TestEndOfExportsIsSearchedOnce checks that a script with set -a in each line is not searched in each line.
func TestEndOfExportsIsSearchedOnce(t *testing.T) {
	for text, want := range map[string]bool{"set -a\nset +o allexport\n": true, "set -a\n": false} {
		r := newReader([]byte(text), testOptions)
		first := r.endsExports()
		r.src = nil
		if first != want || r.endsExports() != want {
			t.Errorf("%q: got %v, then %v, want %v", text, first, r.endsExports(), want)
		}
	}
}

// TestExpansionsAreBounded checks that hostile scripts cannot use much memory, and that their words
// become code of a shell instead. Each script has at most 64 KiB.
func TestExpansionsAreBounded(t *testing.T) {
	long := "v=" + strings.Repeat("a", 20_000) + "\nv=$v$v\n"
	for _, tt := range []struct{ name, script, argument string }{
		{"replacement", long, "${v//a/$v}"},
		{"replacement of the replacement", long, "${v/a/${v//a/$v}}"},
		{"many uses", long, strings.Repeat("$v", 15_000)},
		{"array", "a=()\n" + long + strings.Repeat("a+=(\"$v\")\n", 1000), `"` + strings.Repeat("${a[*]}", 1000) + `"`},
		{"braces", "x=a\n", strings.Repeat("{a,b}$x", 100)},
		{"braces with long words", long, "{1..999}$v"},
		{"many braces", "", strings.Repeat("{1..999} ", 5000)},
		{"pattern", long + "w=" + strings.Repeat("*a", 2500) + "b\n", "${v%%$w}"},
		{"arithmetic", long, strings.Repeat("$((v+1))", 5000)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := Read("job.sh", []byte("#!/bin/bash\n"+tt.script+"srun ./train "+tt.argument+"\n"), Options{})
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; err != nil || used > 600<<20 {
				t.Errorf("allocated %d MiB, %v", used>>20, err)
			}
			if tt.argument[0] != '"' && tt.name != "many braces" && !strings.Contains(string(got.TOML), `"exec ./train `) {
				t.Errorf("%.500s", got.TOML)
			}
		})
	}
}

// TestComputedCommandLines checks that a script with many assignments that refer to each other is read
// in linear time: with n assignments of each variable, the paths between them are n^8.
func TestComputedCommandLines(t *testing.T) {
	var script strings.Builder
	for i := range 8 {
		script.WriteString(strings.Repeat(fmt.Sprintf("v%d=$v%d\n", i, i+1), 200))
	}
	got, err := Read("job.sh", []byte("#!/bin/bash\nv8=\"./train $(date)\"\n"+script.String()+"srun $v0\n"), Options{})
	if err != nil || !strings.Contains(string(got.TOML), `"exec $v0"`) {
		t.Errorf("%v\n%s", err, got.TOML)
	}
}

// TestCallsOfFunctions checks that a script whose functions call each other twice is read in limited
// time: with n functions, the calls are 2^n.
func TestCallsOfFunctions(t *testing.T) {
	var script strings.Builder
	for i := range 60 {
		fmt.Fprintf(&script, "f%d() { f%d; f%d; }\n", i, i+1, i+1)
	}
	got, err := Read("job.sh", []byte("#!/bin/bash\n"+script.String()+"f60() { echo; }\nf0\nsrun ./train\n"), Options{})
	if err != nil || !strings.Contains(string(got.TOML), "argv = [") {
		t.Errorf("%v\n%s", err, got.TOML)
	}
}

// TestNoCommand checks that scripts without a program have a job file and a note.
func TestNoCommand(t *testing.T) {
	for _, tt := range []struct{ name, script, note string }{
		{name: "nothing", script: "#!/bin/sh\n#SBATCH -N 2\necho hello\n", note: "no line starts a program"},
		{name: "syntax error", script: "#!/bin/sh\n#SBATCH -N 2\nsrun python 'x\n", note: "bash cannot parse it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Read("x.sh", []byte(tt.script), testOptions)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(got.TOML), "nodes = 2") || !strings.Contains(string(got.TOML), `argv = ["false"]`) {
				t.Errorf("got %s", got.TOML)
			}
			if got.Changes() == 0 || !strings.Contains(got.Notes[0].Reason, tt.note) || got.Script != nil {
				t.Errorf("got %+v", got.Notes)
			}
		})
	}
}

// TestConversion checks parts of the job file, of the wrapped script, and of the notes that do not
// change what runs in TestDifferential.
func TestConversion(t *testing.T) {
	const head = "#!/bin/bash\n#SBATCH --ntasks=2 --nodes=1\n"
	for _, tt := range []struct {
		name, script string
		wrap         bool
		toml, note   string // expected parts; without a note if empty
		changes      bool
		site         string // default: generic
		args         []string
		wrapped      string
	}{
		{name: "line breaks of DOS", script: "#!/bin/bash\r\n#SBATCH --ntasks=1\r\nsrun python train.py --n 5\r\n", wrap: true,
			toml: `"--n", "5"]`, note: "line breaks of DOS", wrapped: "ddpbatch launch -- python train.py --n 5\n"},
		{name: "hint and binding", script: "#SBATCH --hint=nomultithread\nsrun --cpu-bind=cores python train.py\n",
			toml: `options = ["--threads-per-core=1"]`, note: "--hint=nomultithread"},
		{name: "exported variables", script: "A=$(cat a)\nB=$(cat b)\nsrun python train.py $A $B\n", toml: `"export A", "export B"`, note: "$A, $B"},
		{name: "default of an exported variable in the setup", script: "export A=${A:-1}\nexport B=${B:-2}\n./a\nexport C=${C:-3}\nsrun python train.py $B\n", toml: `"export A=${A:-1}"`, note: "$B, $C"},
		{name: "export after a default", script: "LR=${LR:-0.1}\nexport LR\nsrun python train.py\n", toml: `LR = "0.1"`, note: "$LR"},
		{name: "values of a declaration", script: "export A=1 B=$A\nsrun python train.py\n", toml: `"export A=1 B=$A"`},
		{name: "secret in a declaration", script: "export API_KEY=hunter22 B=$API_KEY\nsrun python train.py\n", note: "export", changes: true, wrapped: "B=$API_KEY"},
		{name: "variable of ranks in a declaration", script: "export RANK=0 B=$RANK\npython train.py\n", note: "export RANK=0 B=$RANK", changes: true, wrapped: "B=$RANK"},
		{name: "printf -v before a known value", script: "A=1\nprintf -v B %s $C\nsrun python train.py $A $B\n", toml: `train.py 1 $B"`, note: "$B"},
		{name: "unknown home directory", script: "HOME=$(mktemp -d)\ncd\ntouch x\nsrun python train.py\n", toml: `"cd", "touch x", "export RANK_DIRECTORY=$PWD"`, note: "$RANK_DIRECTORY"},
		{name: "harmless function in a condition", script: "A=1\nlog() { echo $1; }\nif [ -e a ]; then log a; touch b; fi\nsrun python train.py $A\n", toml: `"train.py", "1"]`},
		{name: "reference in a function", script: "A=1\nlength() { local -n v=$1; touch ${#v}; }\nlength A\nsrun python train.py\n", toml: `"length A"`},
		{name: "default in the setup", script: "N=${N:-0}\n[ $N -lt 5 ] && touch a\nsrun python train.py\n", toml: "N=${N:-0}"},
		{name: "default in an argument", script: "srun python train.py ${N:-7}\n", toml: `"7"]`, note: "$N"},
		{name: "default in a variable of an argument", script: "K=${N:-7}\nsrun python train.py $K\n", toml: `"7"]`, note: "$N"},
		{name: "arguments of a function", script: "log() { echo $1 $*; }\nlog start\nsrun python train.py\nlog end\n", toml: `"train.py"]`},
		{name: "name of the script in a function", script: "there() { touch $0; }\nthere\nsrun python train.py\n", toml: "touch $0"},
		{name: "name of a script without directives", script: "#!/bin/bash\ntouch $0\nsrun python train.py\n", note: "touch $0", changes: true, wrapped: "touch $0"},
		{name: "signal", script: "#SBATCH --signal=SIGUSR2@90\nsrun python train.py\n", toml: `stop_signal = "USR2"`},
		{name: "number of a signal", script: "#SBATCH --signal=B:15@90\nsrun python train.py\n", toml: `stop_signal = "TERM"`},
		{name: "unsupported signal", script: "#SBATCH --signal=WINCH@90\nsrun python train.py\n", note: "--signal", changes: true, wrapped: "ddpbatch launch"},
		{name: "default of the environment's name", script: "conda activate ${ENV:-base}\nsrun python train.py\n", toml: `conda = "base"`, note: "$ENV"},
		{name: "default of a sourced file", script: "source ${F:-env.sh}\nsrun python train.py\n", toml: "source ${F:-env.sh}"},
		{name: "cores that the script does not request", script: "srun python train.py ${SLURM_CPUS_PER_TASK:-4}\n", toml: `"4"]`, note: "$SLURM_CPUS_PER_TASK"},
		{name: "braces in quotes", script: "srun python train.py \"{00000..41455}.tar\"\n", toml: `"{00000..41455}.tar"]`},
		{name: "lines of shell code", script: "srun bash -c \"\ncd $1\npython train.py --lr $LR\n\"\n", note: "$1, $@", changes: true,
			toml: `cd $1; python train.py --lr $LR`, wrapped: `ddpbatch launch -- bash -c "cd $1; python train.py --lr $LR"` + "\n"},
		{name: "lines of a different language", script: "srun python -c \"\nprint($1)\n\"\n", note: "srun", changes: true, toml: "false"},
		{name: "set +e", script: "set -e\ntouch a\nset +e\n./prepare.sh\nsrun python train.py\n", toml: `lines = ["touch a", "set +e", "./prepare.sh", "set -e"]`},
		{name: "set +e for one command", script: "set -eu\n./a\nset +o errexit\n./b\nset -o errexit\n./c\nsrun python train.py\n",
			toml: `lines = ["./a", "set +e", "./b", "set -e", "./c"]`},
		{name: "set -e after a command", script: "./a\nset -euo pipefail\n./b\nset +x\nsrun python train.py\n", toml: `lines = ["set +e", "./a", "set -e", "./b"]`},
		{name: "set +e before the program", script: "set -e\n./a\nset +eu\nsrun python train.py\n", toml: `lines = ["./a"]`},
		{name: "-e in the first line", script: "#!/bin/bash -le\n#SBATCH --ntasks=1\n./a\nset +e\n./b\nsrun python train.py\n", toml: `"set -e", "./a", "set +e", "./b", "set -e"]`},
		{name: "-e of env in the first line", script: "#!/usr/bin/env -S bash -u -e\n#SBATCH --ntasks=1\n./a\nset +e\n./b\nsrun python train.py\n", toml: `lines = ["./a", "set +e", "./b", "set -e"]`},
		{name: "no -e in the first line", script: "#!/bin/bash --noprofile\n#SBATCH --ntasks=1\n./a\nset -e\n./b\nsrun python train.py\n", toml: `lines = ["set +e", "./a", "set -e", "./b"]`},
		{name: "-f in the first line", script: "#!/bin/bash -f\n#SBATCH --ntasks=1\nsrun python train.py *.txt\n", note: "#!/bin/bash -f", changes: true, wrapped: "#!/bin/bash -f"},
		{name: "options of torchrun", script: "torchrun --numa-binding=node --x 1 train.py\n", toml: `argv = ["--numa-binding=node", "--x", "1", "train.py"]`},
		{name: "variables of mpirun", script: "mpirun -x A=\"b c\" -genv D \"e f=g\" -x PATH python train.py\n", toml: "[setup.env]\nA = \"b c\"\nD = \"e f=g\"\n", note: "mpirun"},
		{name: "program on several GPUs", script: "#SBATCH --gpus-per-node=2\npython train.py\n", wrap: true, toml: `run = "once"`, wrapped: "ddpbatch launch --set command.run=once -- python"},
		{name: "container on several GPUs", script: "#SBATCH --gpus-per-node=2\napptainer exec a.sif python train.py\n", wrap: true, note: "2 GPUs", wrapped: "ddpbatch launch --set command.run=once -- apptainer"},
		{name: "program on one GPU", script: "#SBATCH --gpus-per-node=1\npython train.py\n", wrap: true, toml: `"train.py"]`, wrapped: "ddpbatch launch -n 1 -- python"},
		{name: "wrapped mpirun", script: "mpirun ./solver\n", wrap: true, toml: `argv = ["./solver"]`, note: "mpirun", wrapped: "ddpbatch launch --set command.run=once -- mpirun"},
		{name: "wrapped torchrun", script: "torchrun --nproc_per_node=2 train.py\n", wrap: true, toml: `"train.py"]`, wrapped: "ddpbatch launch -n 1 -- torchrun"},
		{name: "backslash at the end", script: "srun python train.py \\", toml: `argv = ["python", "train.py"]`},
		{name: "two backslashes at the end", script: "srun python train.py \\\\", toml: `"train.py", "\\"]`},
		{name: "all cores of a node", script: "#SBATCH --exclusive\nsrun python train.py\n", toml: "cpus_per_task = \"all\"\nexclusive = true\n"},
		{name: "all cores of a node of a site", site: "frontier", script: "#SBATCH --exclusive\nsrun python train.py\n", toml: "cpus_per_task = \"all\"\n"},
		{name: "all cores for several ranks", script: "#!/bin/bash\n#SBATCH --exclusive -N 2 --ntasks-per-node=4 --gpus-per-node=4\nsrun python train.py\n", toml: "tasks_per_node = 4\ngpus_per_node = 4\ncpus_per_task = \"all\"\n"},
		{name: "all cores for one torchrun per node", script: "#!/bin/bash\n#SBATCH --exclusive -N 2 --gpus-per-node=4\nsrun torchrun --nnodes=2 --nproc_per_node=4 train.py\n", toml: "tasks_per_node = 4\ngpus_per_node = 4\ncpus_per_task = \"all\"\n"},
		{name: "all cores for torchrun without srun", script: "#!/bin/bash\n#SBATCH --exclusive -N 1 --ntasks=1\ntorchrun --nproc_per_node=2 train.py\n", toml: "tasks_per_node = 2\ncpus_per_task = \"all\"\n"},
		{name: "all cores for a program that runs once", script: "#!/bin/bash\n#SBATCH --exclusive -N 2\n./run.sh\n", toml: "cpus_per_task = \"all\"\n"},
		{name: "cores of an exact step on a whole node", script: "#SBATCH --exclusive\nsrun --exact python train.py\n", toml: "cpus_per_task = 1\n"},
		{name: "cores in a variable on a whole node", script: "#SBATCH --exclusive\nexport SRUN_CPUS_PER_TASK=3\nsrun python train.py\n", toml: "cpus_per_task = 3\n"},
		{name: "empty number of cores on a whole node", script: "#SBATCH --exclusive\nexport OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-4}\nsrun python train.py\n", toml: "[setup.env]\nOMP_NUM_THREADS = \"4\"\n", note: "$SLURM_CPUS_PER_TASK"},
		{name: "memory of all cores of a node", script: "#SBATCH --exclusive --mem-per-cpu=4G\nsrun -c 4 python train.py\n", toml: `mem_per_cpu = "4G"`},
		{name: "memory of all GPUs of a node", script: "#SBATCH --exclusive --mem-per-gpu=40G --gpus-per-node=2\nsrun -c 4 python train.py\n", toml: `mem_per_gpu = "40G"`},
		{name: "ranks that continue after a failure", script: "srun -K0 python train.py\n", note: "srun --kill-on-bad-exit 0", changes: true},
		{name: "ranks that stop after a failure", script: "srun -K=1 python train.py\n", toml: `argv = ["python", "train.py"]`},
		{name: "tasks per GPU of a step", script: "#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=4\nsrun --ntasks-per-gpu=1 python train.py\n", toml: "nodes = 2\ntasks_per_node = 4\ngpus_per_node = 4\ngpu_bind = \"single:1\"\n"},
		{name: "tasks per GPU of a step that requests the nodes", script: "#!/bin/bash\nsrun -N 2 --gpus=4 --ntasks-per-gpu=2 python train.py\n", toml: "nodes = 2\ntasks_per_node = 4\ngpus_per_node = 2\ngpu_bind = \"single:2\"\n"},
		{name: "tasks per GPU of the job", script: "#!/bin/bash\n#SBATCH -N 1 --gpus-per-node=4 --ntasks-per-gpu=2\nsrun python train.py\n", toml: "tasks_per_node = 8\ngpus_per_node = 4\ngpu_bind = \"single:2\"\n"},
		{name: "tasks per GPU and a binding", script: "#!/bin/bash\n#SBATCH -N 1 --gpus-per-node=4 --ntasks-per-gpu=1\nsrun --gpu-bind=none python train.py\n", toml: "gpu_bind = \"none\"\n"},
		{name: "tasks per GPU without GPUs", script: "srun --ntasks-per-gpu=1 python train.py\n", note: "srun --ntasks-per-gpu=1", changes: true},
		{name: "tasks per GPU that contradict the directives", script: "#!/bin/bash\n#SBATCH -N 1 --gpus-per-node=4 --ntasks-per-node=2\nsrun --ntasks-per-gpu=1 python train.py\n", note: "srun --ntasks-per-gpu=1", changes: true},
		{name: "tasks per GPU known only to a shell", script: "#!/bin/bash\n#SBATCH -N 1 --gpus-per-node=4\nsrun --ntasks-per-gpu=$N python train.py\n", note: "srun --ntasks-per-gpu", changes: true},
		{name: "cores per GPU of a step", script: "#!/bin/bash\n#SBATCH -N 1 --ntasks-per-node=2 --gpus-per-node=4\nsrun --cpus-per-gpu=3 python train.py\n", toml: "cpus_per_task = 6\n"},
		{name: "cores per GPU of a step that requests the GPUs", script: "#!/bin/bash\nsrun -N 1 -n 2 --gpus-per-task=1 --cpus-per-gpu=3 python train.py\n", toml: "tasks_per_node = 2\ngpus_per_node = 2\ncpus_per_task = 3\n"},
		{name: "cores per GPU of a step without GPUs", script: "srun --cpus-per-gpu=3 python train.py\n", note: "srun --cpus-per-gpu=3", changes: true},
		{name: "hint of a step", script: "srun --hint=nomultithread python train.py\n", toml: "hint = \"nomultithread\"\n"},
		{name: "different hint of a step", script: "#SBATCH --hint=multithread\nsrun --hint=nomultithread python train.py\n", toml: "hint = \"multithread\"\n", note: "srun --hint=nomultithread"},
		{name: "hint of a step in a wrapped script", script: "srun --hint=nomultithread python train.py\ntouch a\n", note: "touch a", changes: true, wrapped: "ddpbatch launch --set slurm.hint=nomultithread -- python"},
		{name: "threads per core of a step", script: "srun --threads-per-core=1 python train.py\n", toml: "step_options = [\"--threads-per-core=1\"]"},
		{name: "GPUs per socket", script: "#SBATCH --gpus-per-socket=1\nsrun python train.py\n", note: "--gpus-per-socket=1", changes: true, wrapped: "ddpbatch launch"},
		{name: "GPUs per socket of a step", script: "srun --gpus-per-socket=1 python train.py\n", note: "srun --gpus-per-socket 1", changes: true},
		{name: "resources of tasks", script: "#SBATCH --tres-per-task=cpu=4,gres/gpu:a100:1\nsrun python train.py\n", toml: "tasks_per_node = 2\ngpus_per_node = \"a100:2\"\ncpus_per_task = 4\ngpu_bind = \"per_task:1\"\n"},
		{name: "resources of tasks of a step", script: "srun --tres-per-task=cpu:4,gres/gpu:1 python train.py\n", toml: "tasks_per_node = 2\ngpus_per_node = 2\ncpus_per_task = 4\n"},
		{name: "different resources of tasks", script: "#SBATCH --tres-per-task=license/a:1\nsrun python train.py\n", note: "--tres-per-task=license/a:1", changes: true, wrapped: "ddpbatch launch"},
		{name: "different resources of tasks of a step", script: "srun --tres-per-task=bb/a:1 python train.py\n", note: "srun --tres-per-task=bb/a:1", changes: true},
		{name: "some cores of a node", script: "#SBATCH --exclusive\nsrun -c 4 python train.py\n", toml: "cpus_per_task = 4"},
		{name: "cores that torchrun's ranks cannot share", script: "#!/bin/bash\n#SBATCH --ntasks=1 --cpus-per-task=12\ntorchrun --nproc_per_node=8 train.py\n", note: "12 cores",
			toml: "tasks_per_node = 8\ncpus_per_task = 1\n"},
		{name: "cores of several torchruns", script: "#!/bin/bash\n#SBATCH --nodes=1 --ntasks-per-node=8 -c 14\nsrun torchrun --nproc_per_node=8 train.py\n", note: "8 torchruns", changes: true,
			toml: "tasks_per_node = 8\ncpus_per_task = 14\n", wrapped: "ddpbatch launch --"},
		{name: "GPUs of each task of srun", script: "#!/bin/bash\n#SBATCH -N 2\nsrun -n16 --gpus-per-task=1 --gpu-bind=closest python train.py\n", toml: "gpus_per_node = 8\n"},
		{name: "GPUs of fewer tasks than the job has", script: "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=4\nsrun -n2 --gpus-per-task=2 python train.py\n", toml: "gpus_per_node = 2\n"},
		{name: "GPUs of one torchrun of srun", script: "#!/bin/bash\n#SBATCH -N 2\nsrun --gpus-per-task=8 torchrun --nnodes=2 --nproc_per_node=8 train.py\n", toml: "gpus_per_node = 8\n"},
		{name: "torchruns that do not join", script: "#!/bin/bash\n#SBATCH -N 2\nsrun torchrun --nproc_per_node=2 train.py\n", note: "torchrun", changes: true, wrapped: "ddpbatch launch -- torchrun"},
		{name: "unknown number of GPUs of srun", script: "srun --gpus-per-task=$N python train.py\n", note: "srun --gpus-per-task", changes: true, toml: "argv"},
		{name: "GPUs without export", script: "#SBATCH --gres=gpu:2\nCUDA_VISIBLE_DEVICES=1\nsrun -n1 python train.py\n", toml: "[setup.env]\nCUDA_VISIBLE_DEVICES = \"1\"\n"},
		{name: "libraries without export", script: "LD_LIBRARY_PATH=/y:$LD_LIBRARY_PATH\nsrun python train.py\n", toml: `lines = ["LD_LIBRARY_PATH=/y:$LD_LIBRARY_PATH"]`},
		{name: "default after exports of a file", script: "export $(cat .env)\nsrun python train.py ${LR:-0.1}\n", toml: "train.py ${LR:-0.1}", note: "$LR"},
		{name: "script that uses all tasks", wrap: true, script: "#SBATCH -c 2\n./run.sh\n", toml: "run = \"once\"\n", wrapped: "ddpbatch launch --set command.run=once -- ./run.sh"},
		{name: "script of tcsh", script: "#!/bin/tcsh\n#SBATCH --ntasks=1\nsrun python train.py\n", note: "#!/bin/tcsh", changes: true, wrapped: "ddpbatch launch"},
		{name: "script of fish", script: "#!/usr/bin/env fish\n#SBATCH --ntasks=1\nsrun python train.py\n", note: "#!/usr/bin/env fish", changes: true, wrapped: "ddpbatch launch"},
		{name: "script of env bash", script: "#!/usr/bin/env bash\n#SBATCH --ntasks=1\nsrun python train.py\n", toml: "train.py"},
		{name: "comment in a command", script: "srun python train.py \\\n  # --b 2 \\\n  --c 3\n", note: "# --b 2", changes: true, wrapped: "ddpbatch launch -- python train.py \\\n  # --b 2 \\\n  --c 3\n"},
		{name: "comment at the end of a line of a command", script: "srun python train.py --a $# \\\n  --b 2 # b \\\n  --c 3\n", note: "--b 2 # b", changes: true, wrapped: "ddpbatch launch"},
		{name: "path of the script from Slurm", script: "D=$(dirname $(scontrol show job $SLURM_JOB_ID | awk -F= '/Command=/{print $2}'))\n. $D/act.sh\nsrun python train.py\n", note: "D=$(dirname", changes: true, wrapped: "ddpbatch launch -- python train.py"},
		{name: "comments only at the end of a command", script: "srun python train.py --a 1 \\\n  # --b 2 \\\n  # --c 3\n\nwait\n", toml: `"--a", "1"]`},
		{name: "a command in comments", script: "# python other.py \\\n#  --a 1 \\\n#  --b 2\nsrun python train.py\n", toml: `"train.py"]`},
		{name: "comment before a command", script: "# train \\\nsrun python train.py\n", toml: `"train.py"]`},
		{name: "loop over the arguments", script: "for a; do E=\"$E $a\"; done\nsrun python train.py $E\n", note: "for a; do", changes: true, wrapped: "for a; do"},
		{name: "loop over given arguments", args: words("a b"), script: "for a; do E=\"$E $a\"; done\nsrun python train.py $E\n", note: "$E", toml: `"set -- a b"`},
		{name: "last argument", script: "L=${!#}\nsrun python train.py $L\n", note: "L=${!#}", changes: true, wrapped: "L=${!#}"},
		{name: "set -f in a condition", script: "if [ -d a ]; then set -f; fi\nsrun python train.py *.txt\n", note: "set -f", changes: true, wrapped: "set -f"},
		{name: "shopt in a condition", script: "[ -d a ] && shopt -s nullglob\nsrun python train.py *.txt\n", note: "shopt -s nullglob", changes: true, wrapped: "shopt -s nullglob"},
		{name: "aliases", script: "shopt -s expand_aliases\nalias python=python3\npython train.py\n", note: "shopt -s expand_aliases", changes: true, wrapped: "ddpbatch launch"},
		{name: "standard input of the script", script: "#SBATCH --input=f\nsrun python train.py\n", note: "--input=f", changes: true, toml: `"train.py"]`},
		{name: "container that exists", script: "srun --container-name=c python train.py\n", note: "srun --container-name", changes: true, toml: `"train.py"]`},
		{name: "directory of an image", script: "srun --container-image=i python train.py\n", note: "srun --container-image", toml: `image = "i"`},
		{name: "container that uses all tasks", script: "apptainer exec a.sif ./solver\n", note: "2 tasks per node", changes: true, wrapped: "ddpbatch launch"},
		{name: "start of an option's name", script: "#SBATCH --constrain=m40 --parti gpu\nsrun python train.py\n", toml: "constraint = \"m40\"\npartition = \"gpu\"\n"},
		{name: "start of --signal", script: "#SBATCH --sig=USR2@90\nsrun python train.py\n", toml: `stop_signal = "USR2"`},
		{name: "different cluster", script: "#SBATCH -M gpu\nsrun python train.py\n", note: "--clusters=gpu", changes: true, wrapped: "#SBATCH -M gpu"},
		{name: "alias of --clusters", script: "#SBATCH --cluster=gpu\nsrun python train.py\n", note: "--cluster=gpu", changes: true, wrapped: "--cluster=gpu"},
		{name: "several lines of --mail-type", script: "#SBATCH --mail-type=END\n#SBATCH --mail-type=FAIL,END\n#SBATCH --mail-type=NONE\nsrun python train.py\n",
			toml: `mail = { events = ["end", "fail"] }`},
		{name: "backslash in a directive", script: "#SBATCH --comment=a\\ 'b\\#c'\\#d\nsrun python train.py\n", toml: `comment = "a b#c#d"`},
		{name: "comment in a word of a directive", script: "#SBATCH --job-name=a#b --time=5\nsrun python train.py\n", toml: `name = "a"`},
		{name: "micromamba", script: "eval \"$(micromamba shell hook --shell bash)\"\nmicromamba activate e\nsrun python train.py\n",
			toml: `"micromamba activate e", "set -e"]`},
		{name: "mamba with the hook of conda", script: "eval \"$(conda shell.bash hook)\"\nmamba activate e\nsrun python train.py\n",
			toml: `lines = ["set +e", "eval \"$(conda shell.bash hook)\"", "mamba activate e", "set -e"]`},
		{name: "ranks per socket", script: "mpirun --map-by ppr:2:socket ./solver\n", note: "mpirun --map-by ppr:2:socket", changes: true, wrapped: "-- mpirun --map-by"},
		{name: "unknown number of ranks per node", script: "mpirun --map-by ppr:$N:node ./solver\n", note: "mpirun --map-by", changes: true, wrapped: "-- mpirun --map-by"},
		{name: "test after the program", script: "srun python train.py\nif [ $? -eq 0 ]; then echo ok; else echo failed; fi\n[ -d out ] && echo done\ntest -d out || echo none\n", toml: `"train.py"]`},
		{name: "commands after the program that only print", toml: `"train.py"]`,
			script: "pushd /data\nsrun python train.py\nfor f in a b; do echo $f; done\ncase $X in a) echo a ;; *) echo b ;; esac\necho \"$(python --version) $(git rev-parse HEAD)\"\ntrap - EXIT\npopd\n"},
		{name: "loop after the program", script: "srun python train.py\nfor f in a b; do echo $f; rm $f; done\n", note: "for f in", changes: true, wrapped: "rm $f"},
		{name: "words of a loop after the program", script: "srun python train.py\nfor f in $(./next.sh); do echo $f; done\n", note: "for f in", changes: true, wrapped: "next.sh"},
		{name: "trap after the program", script: "srun python train.py\ntrap 'rm a' EXIT\n", note: "trap", changes: true, wrapped: "trap 'rm a'"},
		{name: "export of a command's output after the program", script: "srun python train.py\nexport A=$(./next.sh)\n", note: "export A", changes: true, wrapped: "next.sh"},
		{name: "test with set -e", script: "set -e\n[ -d data ]\n[[ -d out ]]\n[ -d a ] && [ -d b ]\nsrun python train.py\n",
			toml: `lines = ["[ -d data ]", "[[ -d out ]]", "[ -d a ] && [ -d b ]"]`},
		{name: "tests in compound commands with set -e", script: "set -e\nf() { echo a; [ -d a ]; }\nf\n{ grep -q a b; }\nif [ -d c ]; then test -d d; fi\nsrun python train.py\n",
			toml: `"f", "{ grep -q a b; }", "if [ -d c ]; then test -d d; fi"]`},
		{name: "function that tests and prints with set -e", script: "set -e\nlog() { [ -n \"$V\" ] && echo $1; if [ -d a ]; then echo a; fi; }\nlog b\nsrun python train.py\n", toml: `"train.py"]`},
		{name: "files and programs with set -e", script: "set -e\nls data\nnvidia-smi\nclear\necho a\nls b || true\nls c | head -n 1\nfor f in a b; do cat $f; done\nsrun python train.py\n",
			toml: `lines = ["ls data", "nvidia-smi", "clear", "for f in a b; do cat $f; done"]`},
		{name: "files without set -e", script: "ls data\ncat a\nsrun python train.py\n", toml: "tasks_per_node = 2\n\n[command]"},
		{name: "set -o pipefail", script: "set -eo pipefail\ncat a | sort > b\nls c | head -n 1\nsrun python train.py\n", toml: `lines = ["set -o pipefail", "cat a | sort > b", "ls c | head -n 1"]`},
		{name: "set -o pipefail without a pipe", script: "set -eo pipefail\ntouch a || touch b\nsrun python train.py\n", toml: `lines = ["touch a || touch b"]`},
		{name: "set -u", script: "set -eu\nmkdir -p $PROJECT/out\nset +u\nmodule load m\nsrun python train.py $PROJECT\n", toml: `lines = ["set -o nounset", "mkdir -p $PROJECT/out", "set +o nounset"]`},
		{name: "set -u with variables that are set", script: "set -eu\nA=$(head -n 1 a)\ntouch $A $SLURM_JOB_ID $HOME\nsrun python train.py\n", toml: `lines = ["A=$(head -n 1 a)", "touch $A`},
		{name: "set -u before the program", script: "set -u\ncd $PROJECT/a\nsrun python train.py --out $PROJECT/out\n", toml: `"set -u && cd $PROJECT/a && exec python train.py --out $PROJECT/out"]`},
		{name: "required variable", script: ": \"${PROJECT:?not set}\"\nsrun python train.py\n", toml: `": \"${PROJECT:?not set}\""`},
		{name: "assignment that may fail", script: "N=$(grep -c a b)\ntouch $N\nsrun python train.py\n", toml: `lines = ["set +e", "N=$(grep -c a b)", "touch $N", "set -e"]`},
		{name: "assignment to variables that a module may export", script: "NCCL_DEBUG=INFO\nXDG_RUNTIME_DIR=\nM_ROOT=a\nmodule load m\nM_ROOT=b\nsrun python train.py\n",
			toml: "    { run = \"NCCL_DEBUG=INFO\" },\n    { run = \"XDG_RUNTIME_DIR=\" },\n    { modules = [\"m\"] },\n    { run = \"M_ROOT=b\" },\n"},
		{name: "filter that writes a file", script: "scontrol show hostnames | sed 's/$/ slots=4/' > hostfile\nenv | sort 2>/dev/null | head\nnvidia-smi | awk '{ print > \"gpus\" }'\nsrun python train.py\ncat log | grep loss >result\n",
			toml: `lines = ["set +e", "scontrol show hostnames | sed 's/$/ slots=4/' > hostfile", "nvidia-smi | awk '{ print > \"gpus\" }'", "set -e"]`, note: "cat log", changes: true, wrapped: "grep loss >result"},
		{name: "commands that print with some arguments only", script: "conda env list\nconda env create -f env.yml\nnvcc --version\nnvcc -o k k.cu\nsrun python train.py\n",
			toml: `lines = ["set +e", "conda env create -f env.yml", "nvcc -o k k.cu", "set -e"]`},
		{name: "arguments of the script in a variable", script: "ARGS=${@:2}\nMORE=\"$*\"\nsrun python train.py $ARGS $MORE\n", toml: `"train.py"]`, note: "ARGS=${@:2}"},
		{name: "here-document in a substitution", script: "A=$(cat - <<EOF\nx\nEOF\n)\nexport B=$(sh <<EOF\ny\nEOF\n)\ntouch $A\nsrun python train.py\n",
			toml: `run = "A=$(cat - <<EOF\nx\nEOF\n)", may_fail = true },` + "\n" + `    { run = "export B=$(sh <<EOF\ny\nEOF\n)"`},
		{name: "default of the cores", site: "frontier", script: "OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}\nsrun python train.py\n", toml: `lines = ["OMP_NUM_THREADS=1"]`},
		{name: "name of the script", script: "touch $SLURM_JOB_NAME\nsrun python train.py\n", toml: "name = \"job.sh\"\n"},
		{name: "name of the script in the command", script: "srun python train.py $SCRATCH/$SLURM_JOB_NAME\n", toml: "name = \"job.sh\"\n"},
		{name: "name of the script in shell code", script: "srun bash -c 'python train.py $SLURM_JOB_NAME'\n", toml: "name = \"job.sh\"\n"},
		{name: "tasks of srun in the setup", script: "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4\nsrun cp a /tmp\nIP=$(srun -N 1 -n 1 ./ip)\nif [ -e a ]; then srun --ntasks-per-node=2 cp a /tmp; fi\nsrun torchrun --nnodes=2 --nproc_per_node=4 train.py\n",
			toml: `"srun --ntasks=2 --ntasks-per-node=1 cp a /tmp", "IP=$(srun -N 1 -n 1 ./ip)", "if [ -e a ]; then srun --ntasks=4 --ntasks-per-node=2 cp a /tmp; fi"`},
		{name: "numbers of tasks that the script does not request", script: "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=4\nexport N=${SLURM_NTASKS_PER_NODE:-2}\ntouch $N\nsrun torchrun --nnodes=2 --nproc_per_node=4 train.py ${SLURM_NTASKS:-2}\n",
			toml: `"export N=2", "touch $N"`, note: "$SLURM_NTASKS"},
		{name: "number of tasks in shell code of a rank", script: "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=4\nsrun bash -c 'torchrun --nnodes=2 --nproc_per_node=4 train.py ${SLURM_NTASKS:-1}'\n", note: "${SLURM_NTASKS:-1}", changes: true,
			wrapped: "ddpbatch launch -- bash -c"},
		{name: "number of tasks that is empty in the script", script: "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=4\ntouch a$SLURM_NTASKS\nsrun python train.py\n", note: "$SLURM_NTASKS", changes: true, wrapped: "touch a$SLURM_NTASKS"},
		{name: "unknown tasks of srun in the setup", script: "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4\nsrun -N $N cp a /tmp\nsrun torchrun --nnodes=2 --nproc_per_node=4 train.py\n",
			note: "srun -N $N", changes: true, wrapped: "ddpbatch launch -- torchrun"},
		{name: "GPUs per node in the setup", script: "#!/bin/bash\n#SBATCH --nodes=1 --gpus-per-node=4\nexport N=$SLURM_GPUS_PER_NODE\nM=$SLURM_GPUS_PER_NODE\ntouch $N $M\nsrun python train.py\n", toml: `"export N=4", "M=4", "touch $N $M"`},
		{name: "list that a command changes", script: "A=\"--x $D\"\nread -r A < params\nsrun python train.py $A\n", toml: `exec python train.py $A"]`, note: "$A"},
		{name: "list that is unset", script: "A=\"--x $D\"\nif [ -d a ]; then unset A; fi\nsrun python train.py $A\n", toml: `exec python train.py $A"]`, note: "$A"},
		{name: "element of a list that is unset", script: "A=(1 2)\nunset 'A[1]'\nsrun python train.py \"${A[@]}\"\n", toml: `"A=(1 2)", "unset 'A[1]'", "export A_ARRAY=$(declare -p A)"`, note: `"${A[@]}"`},
		{name: "list before its variable changes", script: "A=\"--x $D\"\nD=b\nsrun python train.py $A\n", toml: `exec python train.py $A"]`, note: "$A"},
		{name: "list before a sourced file", script: "A=\"--x $D\"\nsource f\nsrun python train.py $A\n", toml: `"A=\"--x $D\"", "source f", "export A"`, note: "$A"},
		{name: "list after a command that changes its variable", script: "read -r D < params\nA=(--x $D)\nB=$D\nA+=(--b $B)\nsrun python train.py \"${A[@]}\"\n", toml: `exec python train.py --x $D --b $B"]`, note: "$D, $B"},
		{name: "tasks of mpirun in the setup", script: "#!/bin/bash\n#SBATCH --nodes=1 --ntasks=8\nmpirun -np 2 ./a\nmpirun ./b\nsrun -n4 python train.py\n", note: "mpirun ./b", changes: true, wrapped: "ddpbatch launch --ntasks=4 -- python"},
		{name: "random port of a program that runs once", script: "#SBATCH --gpus-per-node=2\ndeepspeed --master_port $((RANDOM % 99 + 29500)) train.py\n", toml: `exec deepspeed --master_port $((RANDOM % 99 + 29500)) train.py"`},
		{name: "declarations in a file", script: "export -p > a\ndeclare -p B > c\nsrun python train.py\n", toml: `"export -p > a", "declare -p B > c"`},
		{name: "directory of the script", script: "#SBATCH --chdir=a\ntouch b\nsrun python train.py $PWD\n",
			toml: "\"cd a\", \"touch b\", \"set -e\"]\n\n[command]\nargv = [\"python\", \"train.py\", \"/home/ada/project/a\"]\nworkdir = \"a\""},
		{name: "directory of the step", script: "cd $D\nsrun --chdir=b python train.py\n", toml: `"cd $D/b && exec python train.py"]`},
		{name: "directory in a variable that changes", script: "cd $D/a\nD=b\nsrun python train.py $D\n", toml: `"cd \"$RANK_DIRECTORY\" && exec python train.py b"]`, note: "$RANK_DIRECTORY"},
		{name: "directory in a variable after the first directory", script: "cd a\ncd $D\nsrun python train.py\n", toml: `lines = ["cd a", "cd $D", "export RANK_DIRECTORY=$PWD"]`, note: "$RANK_DIRECTORY"},
		{name: "directory of the setup", script: "if [ -d a ]; then cd a; fi\nsrun python train.py\n", toml: `"cd \"$RANK_DIRECTORY\" && exec python train.py"]`, note: "$RANK_DIRECTORY"},
		{name: "directory below a directory that only the setup knows", script: "cd -\ncd a\nsrun --chdir=b python train.py\n", toml: `"cd \"$RANK_DIRECTORY\"/b && exec python train.py"]`, note: "$RANK_DIRECTORY"},
		{name: "stack of directories", script: "pushd a\ntouch b\npopd\nsrun python train.py\n", toml: `"pushd a", "touch b", "popd", "export RANK_DIRECTORY=$PWD"`, note: "$RANK_DIRECTORY"},
		{name: "return to the first directory", script: "[ -d a ] && cd a\ntouch b\ncd $SLURM_SUBMIT_DIR\ntouch c\nsrun python train.py\n", toml: `"touch b", "cd /home/ada/project", "touch c", "set -e"]`},
		{name: "stack with the first directory", script: "pushd $SLURM_SUBMIT_DIR\npushd a\npushd\ntouch b\nsrun python train.py\n", toml: `"pushd /home/ada/project", "pushd a", "pushd", "touch b", "export RANK_DIRECTORY=$PWD"`, note: "$RANK_DIRECTORY"},
		{name: "empty operand", script: "N=$(( $SLURM_CPUS_PER_TASK * 2 ))\nsrun python train.py $N ${SLURM_CPUS_PER_TASK}a\n", note: "$SLURM_CPUS_PER_TASK", changes: true, wrapped: "train.py $N"},
		{name: "number of cores that is empty in the script", script: "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nsrun python train.py\n", note: "$SLURM_CPUS_PER_TASK", changes: true, wrapped: "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK"},
		{name: "network of a program that runs once", script: "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=2\nexport NCCL_SOCKET_IFNAME=ib0\ndeepspeed train.py\n", toml: `lines = ["export NCCL_SOCKET_IFNAME=ib0"]`},
		{name: "network of ranks", script: "export NCCL_SOCKET_IFNAME=ib0\nsrun python train.py\n", toml: "[command]", note: "NCCL_SOCKET_IFNAME"},
		{name: "cores of srun", script: "#SBATCH -c 4\nexport SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\nsrun ./prepare\nsrun python train.py\n", toml: `"export SRUN_CPUS_PER_TASK=4", "srun ./prepare"`},
		{name: "wait for a loop in the background", script: "for f in a b; do ./copy $f & done\nwait\nsrun python train.py\n", toml: `"for f in a b; do ./copy $f & done", "wait"`},
		{name: "wait for a list of processes", script: "./a &\nP+=($!)\nwait \"${P[@]}\"\n./b &\nP=($!)\nfor p in ${P[@]}; do wait $p; done\nsrun python train.py\n", toml: `"wait \"${P[@]}\"", "./b &"`},
		{name: "command of eval that a condition changes", script: "C=\"srun python train.py\"\n[ -d a ] && C+=\" --a\"\neval \"$C\"\n", note: "the command", changes: true, toml: `argv = ["false"]`},
		{name: "shell script in a job of one task", script: "#!/bin/bash\n#SBATCH --nodes=1 --ntasks=1\nbash train.sh a\n", wrap: true, toml: "\"train.sh\", \"a\"]\nrun = \"once\"\n", wrapped: "ddpbatch launch --set command.run=once -- bash train.sh"},
		{name: "shell script with options", script: "#!/bin/bash\n#SBATCH --nodes=1 --ntasks=1\nbash -x --norc train\n", toml: "\"--norc\", \"train\"]\nrun = \"once\"\n"},
		{name: "shell script in a directory of the user", script: "#!/bin/bash\n#SBATCH --nodes=1 --ntasks=1\nbash \"$D/train.sh\"\n", toml: "train.sh\\\"\"]\nrun = \"once\"\n"},
		{name: "shell code in a job of one task", script: "#!/bin/bash\n#SBATCH --nodes=1 --ntasks=1\nexport NCCL_SOCKET_IFNAME=ib0\nbash -lc 'python train.py'\n", note: "NCCL_SOCKET_IFNAME", toml: `"python train.py"]`}, // not once
		{name: "name that a job cannot have", script: "#SBATCH --job-name=a/b\ntouch $SLURM_JOB_NAME\nsrun python train.py\n", note: "$SLURM_JOB_NAME", changes: true, wrapped: "touch $SLURM_JOB_NAME"},
		{name: "signal for steps", script: "#SBATCH --signal=USR1@90\npython train.py\n", toml: `signal_before_end = "90s"`, note: "--signal=USR1@90"},
		{name: "signal for the batch script", script: "#SBATCH --signal=B:USR1@90\npython train.py\n", toml: `signal_before_end = "90s"`},
		{name: "wait in a function", script: "vllm serve a &\nready() { echo wait; sleep 5; }\nready\nsrun python train.py\n", toml: `"vllm serve a &", "ready() { echo wait; sleep 5; }", "ready"`},
		{name: "server before a wait for a different command", script: "./server &\nwait $A\nsrun python train.py\n", note: "./server &", changes: true, wrapped: "ddpbatch launch -- python"},
		{name: "wait for a known time", script: "sleep 5\nwait\nsrun python train.py\n", toml: "tasks_per_node = 2\n\n[command]"},
		{name: "wait for a time that differs in an array", script: "#SBATCH --array=0-3\nsleep $((SLURM_ARRAY_TASK_ID * 5))\nsrun python train.py\n", toml: `lines = ["set +e", "sleep $((SLURM_ARRAY_TASK_ID * 5))"`},
		{name: "exit status of a command", script: "cp a b\nif [ $? -ne 0 ]; then exit 1; fi\n./c\nRC=$?\n[ $RC -eq 0 ] || exit $RC\nsrun python train.py\n",
			toml: `lines = ["set +e", "cp a b; if [ $? -ne 0 ]; then exit 1; fi", "./c; RC=$?", "[ $RC -eq 0 ] || exit $RC", "set -e"]`},
		{name: "exit status of an omitted command", script: "cp a b\necho c\nif [ $? -ne 0 ]; then exit 1; fi\nsrun python train.py\n", note: "if [ $?", changes: true, wrapped: "exit 1"},
		{name: "exit status of the command before a call", script: "cp a b\ncheck() { [ $? -eq 0 ] || exit 1; }\ntar xf c\ncheck\nsrun python train.py\n", note: "check()", changes: true, wrapped: "check\n"},
		{name: "exit status of a module", script: "module load a\nif [ $? -ne 0 ]; then exit 1; fi\nsrun python train.py\n", note: "if [ $?", changes: true, wrapped: "exit 1"},
		{name: "copy of the script", script: "cp \"$0\" out/\nsrun python train.py\n", toml: "cp \\\"$0\\\" out/", note: "cp \"$0\" out/"},
		{name: "programs at the same time", script: "for i in 1 2; do python train.py $i & done\nwait\n", note: "python train.py", changes: true, wrapped: "ddpbatch launch --set command.run=once -- python train.py $i &"},
		{name: "programs with steps at the same time", script: "for i in 1 2; do mpirun -n 1 ./solver $i & done\nwait\n", note: "mpirun", changes: true},
		{name: "shell scripts at the same time", script: "for i in 1 2; do bash train.sh $i & done\nwait\n", note: "bash train.sh", changes: true},
		{name: "program next to a step", script: "#!/bin/bash\n#SBATCH --nodes=1 --ntasks=1\nsrun ./server &\npython train.py\n", note: "srun ./server", changes: true, wrapped: "ddpbatch launch --set command.run=once -- python train.py"},
		{name: "steps at the same time", script: "for i in 1 2; do srun -n1 python train.py $i & done\nwait\n", note: "srun -n1", changes: true},
		{name: "step next to a server", script: "srun -n1 python server.py &\nsrun -n1 python train.py\n", note: "srun -n1 python server.py", changes: true},
		{name: "step in the background", script: "srun python train.py &\nwait\n", note: "srun python", changes: true, wrapped: "ddpbatch launch -- python train.py &"},
		{name: "GPUs of the job in the step", script: "#SBATCH --gres=gpu:a100:2\nsrun --gres=gpu:2 --gpus-per-node=a100:2 python train.py\nrm a\n", note: "rm a", changes: true, wrapped: "ddpbatch launch -- python"},
		{name: "some GPUs of the job in the step", script: "#SBATCH --gres=gpu:2\nsrun --gres=gpu:1 python train.py\nrm a\n", note: "srun --gres=gpu:1", changes: true},
		{name: "directory of a container in a wrapped script", script: "srun --container-image=i --container-workdir='/w x' python train.py a\nrm a\n", note: "rm a", changes: true,
			wrapped: `ddpbatch launch --container-image=i -- bash -c "cd '/w x' && exec \"\$0\" \"\$@\"" python train.py a`},
		{name: "test without set -e", script: "[ -d data ]\n[ -d a ] && echo a\nsrun python train.py\n", toml: "[command]"},
		{name: "directory of a substitution in a condition", script: "if [ -z \"$D\" ]; then D=\"$(cd conf && pwd)\"; (cd a; touch b); fi\nsrun python train.py $D\n", toml: "exec python train.py $D", note: "$D"},
		{name: "default of an argument", script: "LR=${1:-0.1}\nsrun python train.py --lr $LR ${2-a}\n", toml: `"--lr", "0.1", "a"]`, note: "$1"},
		{name: "default of an argument in a condition", script: "if [ \"${1:-a}\" = a ]; then touch a; fi\nsrun python train.py\n", toml: "touch a", note: "$1"},
		{name: "number of arguments", script: "if [ $# -gt 0 ]; then touch a; fi\nsrun python train.py $#\n", toml: `"0"]`, note: "$#"},
		{name: "script that requires arguments", script: "if [ $# -lt 1 ]; then exit 1; fi\nsrun python train.py\n", note: "if [ $#", changes: true, wrapped: "if [ $#"},
		{name: "default of an argument that the script sets", script: "if [ -d a ]; then set -- b; fi\nsrun python train.py ${1:-c}\n", toml: "${1:-c}", note: "$1, $@", changes: true, wrapped: "${1:-c}"},
		{name: "default of an argument of a function", script: "f() { srun python train.py ${1:-c}; }\nf d\n", toml: "${1:-c}", note: "srun python", changes: true, wrapped: "${1:-c}"},
		{name: "loop over one word", script: "for seed in 42; do\n  touch $seed\n  srun python train.py --seed $seed\ndone\n", toml: `"--seed", "42"]`},
		{name: "loop over one word with continue", script: "for seed in 42; do\n  [ -d a ] && continue\n  srun python train.py --seed $seed\ndone\n", note: "srun python", changes: true, wrapped: "for seed in 42"},
		{name: "positions of a job array", script: "#SBATCH --array=[2-8:2]%1\n# SLURM_ARRAY_TASK_MIN\nsrun python train.py $SLURM_ARRAY_TASK_COUNT $SLURM_ARRAY_TASK_MIN $SLURM_ARRAY_TASK_MAX\n",
			toml: "\"4\", \"2\", \"8\"]\n\n[sweep]\narray = \"2-8:2%1\""},
		{name: "positions of a job array in the setup", script: "#SBATCH --array=2-8\ntouch $SLURM_ARRAY_TASK_COUNT\ntouch $SLURM_ARRAY_TASK_MAX\nsrun python train.py\n",
			note: "SLURM_ARRAY_TASK_MAX", changes: true, wrapped: "touch"},
		{name: "lines of shell code in quotes", script: "srun bash -c '\ncd a\npython train.py '\"$LR\"'\n'\n", toml: `exec bash -c \"$ARG1\"`, note: "'"},
		{name: "directory in a container", script: "srun --container-image=i --container-workdir=/w python train.py\n", toml: `["bash", "-c", "cd /w && exec python train.py"]`},
		{name: "directories in and outside of a container", script: "srun --container-image=i --container-workdir=/w --chdir=/x python train.py\n",
			toml: "\"cd /w && exec python train.py\"]\nworkdir = \"/x\""},
		{name: "tasks that cannot share GPUs", script: "#!/bin/bash\n#SBATCH -n 15 --gres=gpu:2\npython train.py\n", toml: "tasks_per_node = 1\ngpus_per_node = 2\ncpus_per_task = 15\n", note: "15 tasks"},
		{name: "name of a column", script: "srun python train.py data.messages_key=prompt --reward_fn_key source\n", toml: `"data.messages_key=prompt", "--reward_fn_key", "source"]`},
		{name: "comparison in an arithmetic command", script: "A=3\n((A > 2)) && echo large\nsrun python train.py $A\n", toml: `"3"]`},
		{name: "set -a", script: "set -a\nsource env.sh\nA=b\nset +a\nC=d\nsrun python train.py $C\n", toml: "\"set -a\", \"source env.sh\""},
		{name: "set -a without an end", script: "set -a\nsrun python train.py\n", note: "set -a", changes: true, wrapped: "set -a"},
		{name: "repeated -v", script: "#SBATCH -vv\nsrun python train.py\n", toml: "[command]", note: "--verbose"},
		{name: "role of torchrun", script: "torchrun --role=a train.py\n", toml: `argv = ["train.py"]`, note: "--role"},
		{name: "directory of the job file", script: "#SBATCH --chdir=./\nsrun python train.py\n", toml: "[command]\nargv = [\"python\", \"train.py\"]\n"},
		{name: "directives after a command", script: "echo a\n#SBATCH --time=5\n#SBATCH --mem=1G\nsrun python train.py\n", toml: "tasks_per_node = 2\n\n", note: "#SBATCH --time"},
		{name: "variables of ranks", script: "export WORLD_SIZE=2\nsrun python train.py\n", toml: "[command]", note: "WORLD_SIZE=2"},
		{name: "variables of ranks of a program that runs once", script: "#SBATCH --gpus-per-node=2\nexport WORLD_SIZE=2\npython train.py\n", note: "WORLD_SIZE=2", changes: true,
			wrapped: "command.run=once -- env WORLD_SIZE=\"$WORLD_SIZE\" python"},
		{name: "variables of ranks of one process", script: "#!/bin/bash\n#SBATCH --nodes=1\nexport RANK=0 WORLD_SIZE=2\npython train.py\n", note: "WORLD_SIZE=2", changes: true,
			wrapped: "launch -n 1 -- env RANK=\"$RANK\" WORLD_SIZE=\"$WORLD_SIZE\" python"},
		{name: "variables of the only rank", script: "#!/bin/bash\n#SBATCH --nodes=1\nexport RANK=0 WORLD_SIZE=1\npython train.py\n", note: "RANK=0", toml: "[command]"},
		{name: "command substitution after the program", script: "srun python train.py\nA=$(./next.sh)\n", note: "A=$(./next.sh)", changes: true, wrapped: "next.sh"},
		{name: "harmless command substitution after the program", script: "srun python train.py\nA=$(sacct -j $SLURM_JOB_ID | tail -n 1)\n", toml: "[command]"},
		{name: "program whose name starts like a harmless command", script: "srun python train.py\necho \"$(catalog --update)\"\n", note: "echo", changes: true, wrapped: "catalog"},
		{name: "old launcher of torch", script: "#!/bin/bash\n#SBATCH -n 16 --gpus=4\npython -m torch.distributed.launch --nproc_per_node=4 train.py\n", toml: `"torch.distributed.launch", "--nproc_per_node=4", "train.py"]`},
		{name: "variables of ranks of a launcher", script: "#SBATCH --gpus-per-node=2\nexport WORLD_SIZE=2\naccelerate launch train.py\n", note: "WORLD_SIZE=2", toml: `run = "once"`},
		{name: "variable of ranks for one command", script: "#SBATCH --gpus-per-node=2\nWORLD_SIZE=2 python train.py\n", note: "WORLD_SIZE=2", changes: true},
		{name: "set +e in steps", script: "set -e\nmodule load x\n./a\nset +e\n./b\nsrun python train.py\n",
			toml: "    { run = \"./a\" },\n    { run = \"./b\", may_fail = true },\n"},
		{name: "getopts", script: "while getopts l: o; do LR=$OPTARG; done\nsrun python train.py --lr $LR\n", note: "while getopts", changes: true, wrapped: "ddpbatch launch --"},
		{name: "script that submits itself", script: "sbatch --dependency=afterany:$SLURM_JOB_ID job.sh\nsrun python train.py\n", note: "sbatch", changes: true, wrapped: "sbatch --dependency"},
		{name: "different script", script: "sbatch other.sh\nsrun python train.py\n", toml: "sbatch other.sh"},
		{name: "timeout", script: "timeout -s INT 3h srun -n 2 python train.py\n", wrap: true,
			toml: `argv = ["timeout", "-s", "INT", "3h", "python"`, wrapped: "timeout -s INT 3h ddpbatch launch --ntasks=2 -- python"},
		{name: "singleton", script: "#SBATCH --dependency=singleton\nsrun python train.py\n", toml: `dependency = ["singleton"]`},
		{name: "here-string without a secret", script: "read -r A B <<< '1 2'\nsrun python train.py\n", toml: "read -r A B"},
		{name: "first line of a here-string", script: "NODES=$(head -n 1 <<< \"$SLURM_NODELIST\")\ntouch $NODES\nsrun python train.py\n", toml: "NODES=$(head"},
		{name: "default of a number of tokens", script: "./a --max-n-token \"${MAX_N_TOKEN:-640}\"\nsrun python train.py\n", toml: "./a --max-n-token"},
		{name: "all arguments", script: "srun python train.py \"$@\" $* ${@:2}\n", toml: `"train.py"]`, note: `"$@"`},
		{name: "all arguments of a module for torchrun", script: "torchrun --nproc_per_node=2 -m train $SCRATCH \"${@}\"\n", toml: `exec python3 -u -m train $SCRATCH"]`, note: `"${@}"`},
		{name: "all arguments as the program", script: "srun python \"$@\"\n", note: "$1, $@", changes: true, wrapped: `python "$@"`},
		{name: "all arguments and the name of the script", script: "srun python train.py ${@:0}\n", note: "$1, $@", changes: true, wrapped: "${@:0}"},
		{name: "argument with a variable for one command", script: "LR=1 srun python train.py $1\n", note: "$1, $@", changes: true, wrapped: "train.py $1"},
		{name: "given arguments", args: words("c.yaml 0.1 c"), script: "CFG=$1; shift\ncp $CFG $1\nsrun python train.py --cfg $CFG \"$@\" ${@:2} ${3:-d} $#\n", note: "$3",
			toml: `"--cfg", "c.yaml", "0.1", "c", "c", "d", "2"]`},
		{name: "given arguments in the setup", args: []string{"a b"}, script: "if [ $# -lt 1 ]; then exit 1; fi\nexport A=$1\nmkdir \"$A\"\nsrun python train.py\n",
			toml: `"set -- 'a b'", "if [ $# -lt 1 ]; then exit 1; fi", "export A='a b'"`},
		{name: "sourced file that changes given arguments", args: words("--nj 8 data"), script: "nj=4\n. utils/parse_options.sh\nsrun python train.py $1 --nj $nj\n",
			toml: `". utils/parse_options.sh", "export ARG1=$1"`, note: "$nj"},
		{name: "sourced file that sets arguments", script: ". env.sh\nsrun python train.py \"$@\"\n", note: "$1, $@", changes: true, wrapped: `"$@"`},
		{name: "sourced file that reads given arguments", args: words("a"), script: "set -e\nsource env.sh\nsrun python train.py\n", toml: `"set -- a", "source env.sh"`},
		{name: "value before a sourced file", script: "LR=${1:-0.1}\n. env.sh\nsrun python train.py --lr $LR\n", toml: `"LR=${1:-0.1}", ". env.sh", "export LR"`, note: "$1"},
		{name: "given arguments, all shifted", args: words("d"), script: "D=$1; shift\nsrun python train.py $D \"$@\" $#\n", toml: `"train.py", "d", "0"]`},
		{name: "shift without use in the setup", args: words("d e"), script: "set -e\nD=$1; shift\ntouch a\nsrun python train.py $D \"$@\"\n", toml: `lines = ["touch a"]`},
		{name: "given arguments and builtin", args: words("d e"), script: "builtin shift\nsrun python train.py $1\n", note: "builtin shift", changes: true, wrapped: "builtin shift"},
		{name: "given arguments and a conditional shift", args: words("a b"), script: "[ $# -gt 1 ] && shift\nsrun python train.py \"$@\"\n", note: "$1, $@", changes: true, wrapped: `"$@"`},
		{name: "given arguments and those of a function", args: words("a b"), script: "run() { srun python train.py \"$@\"; }\nrun c\n", note: "srun python", changes: true, wrapped: `"$@"`},
		{name: "secret as a given argument", args: words("--token hunter22"), script: "touch $2\nsrun python train.py\n", note: "the arguments", changes: true, wrapped: "touch $2"},
		{name: "condition with a known result", script: "MODE=b\nif [ \"$MODE\" = a ]; then srun python a.py\nelif [[ $MODE == b ]]; then touch b; srun python b.py\nelse srun python c.py; fi\n",
			toml: `"b.py"]`},
		{name: "flag in a condition", script: "FAST=false\nif $FAST; then srun python a.py; else srun python b.py; fi\n", toml: `"b.py"]`},
		{name: "condition with a number", script: "DEBUG=0\nif [ $DEBUG -eq 1 ]; then srun python a.py; elif [[ $DEBUG -ne 1 ]]; then srun python b.py; fi\n", toml: `"b.py"]`},
		{name: "condition with an octal number", script: "N=010\nif [ $N -eq 10 ]; then srun python a.py; else srun python b.py; fi\n", note: "srun python b.py", changes: true, wrapped: "a.py"},
		{name: "condition with a word", script: "FAST=false\nif [ $FAST ]; then srun python a.py; else srun python b.py; fi\n", note: "srun python b.py", changes: true, wrapped: "a.py"},
		{name: "condition with an empty command", script: "FAST=\nif $FAST; then srun python a.py; else srun python b.py; fi\n", note: "srun python b.py", changes: true, wrapped: "a.py"},
		{name: "condition that the environment decides", script: "MODE=${MODE:-b}\nif [ $MODE = a ]; then srun python a.py; else srun python b.py; fi\n", note: "srun python b.py", changes: true, wrapped: "a.py"},
		{name: "condition that a sourced file decides", script: "MODE=a\nsource env.sh\nif [ $MODE = a ]; then srun python a.py; else srun python b.py; fi\n", note: "srun python b.py", changes: true, wrapped: "a.py"},
		{name: "condition with a pattern", script: "MODE=abc\nif [[ $MODE == a* ]]; then srun python a.py; else srun python b.py; fi\n", note: "srun python b.py", changes: true, wrapped: "a.py"},
		{name: "exec in a condition", script: "if [ -d a ]; then exec ./fast.sh; fi\nsrun python train.py\n", note: "exec ./fast.sh", changes: true, wrapped: "exec ./fast.sh"},
		{name: "hook of conda for activate", script: "eval \"$(conda shell.bash hook)\"\nsource activate \"$NAME\"\nsrun python train.py\n", toml: `eval \"$(conda shell.bash hook)\"`},
		{name: "directory of torchrun in a container", script: "#!/bin/bash\n#SBATCH --nodes=1 -c 4\nsrun --container-image=i --container-workdir=/w torchrun --nproc_per_node=2 train.py\n",
			toml: `["--no_python", "bash", "-c", "cd /w && exec python3 -u train.py"]`},
		{name: "variable that a container replaces", script: "srun apptainer exec a.sif python train.py --lib $LD_LIBRARY_PATH\n", toml: `"export ARG1=$LD_LIBRARY_PATH"`, note: "$LD_LIBRARY_PATH"},
		{name: "variable that a container replaces, in shell code", script: "srun apptainer exec a.sif bash -c \"\nexport PATH=/x:$PATH\npython train.py\n\"\n", toml: `exec bash -c \"$ARG1\"`, note: "\"export PATH"},
		{name: "variable that a container replaces, in quotes", script: "srun apptainer exec a.sif bash -c 'python train.py $PATH'\n", toml: `"python train.py $PATH"]`},
		{name: "variable that a container replaces, in a part of a word", script: "srun apptainer exec a.sif python train.py \"$PATH\":$B\n", note: "$PATH", changes: true, wrapped: "ddpbatch launch -- apptainer"},
		{name: "variable on the host", script: "srun python train.py $PATH\n", toml: `exec python train.py $PATH"]`},
		{name: "default of an image in a command", script: ": \"${IMAGE:=/a.sqsh}\"\nsrun --container-image=$IMAGE python train.py\n", toml: `image = "/a.sqsh"`, note: "$IMAGE"},
		{name: "defaults of the environment in a command", script: ": \"${OMP_NUM_THREADS:=4}\"\nsrun python train.py\n", toml: `lines = ["OMP_NUM_THREADS=\"${OMP_NUM_THREADS:-4}\""]`},
		{name: "index of a job array without --array", script: "srun python train.py $SLURM_ARRAY_TASK_ID\n", toml: `train.py $SLURM_ARRAY_TASK_ID"]`, note: "$SLURM_ARRAY_TASK_ID"},
		{name: "index of a job array without --array in the setup", script: "touch $SLURM_ARRAY_TASK_ID\nsrun python train.py\n", toml: `"touch $SLURM_ARRAY_TASK_ID"`, note: "$SLURM_ARRAY_TASK_ID"},
		{name: "cores of GPUs that the script does not request", script: "#SBATCH --cpus-per-gpu=6\nsrun python train.py\n", toml: "cpus_per_task = 1\n", note: "--cpus-per-gpu=6"},
		{name: "here-string for a login in shell code", script: "srun bash -c '\ntool login <<< hunter22\npython train.py'\n", note: "bash -c", changes: true},
		{name: "here-string for a login in a container", script: "srun apptainer exec a.sif bash -c '\ntool login <<< hunter22\npython train.py'\n", note: "bash -c", changes: true},
		{name: "default of an argument in a command", script: ": ${1:=5}\nsrun python train.py\n", note: ": ${1:=5}", changes: true, wrapped: ": ${1:=5}"},
		{name: "here-string for a login", script: "tool login <<< hunter22\nsrun python train.py\n", note: "tool", changes: true, wrapped: "tool login"},
		{name: "login shell", script: "#!/bin/bash --login\n#SBATCH --ntasks=1\nsrun python train.py\n", toml: `lines = ["set +e", ". /etc/profile", "if [ -r ~/.bash_profile ];`},
		{name: "login shell of sh", script: "#!/bin/sh -l\n#SBATCH --ntasks=1\nsrun python train.py\n", toml: `". /etc/profile", "[ ! -r ~/.profile ] || . ~/.profile", "set -e"]`},
		{name: "step of a different job", script: "srun --jobid=7 python train.py\n", note: "srun --jobid 7", changes: true},
		{name: "step of this job", script: "srun --jobid=$SLURM_JOB_ID python train.py\n", toml: `argv = ["python", "train.py"]`},
		{name: "torchrun without a number of nodes", script: "#!/bin/bash\n#SBATCH --nodes=2\nsrun torchrun --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint a:1 train.py\n", note: "torchrun", changes: true,
			wrapped: "ddpbatch launch -- torchrun"},
		{name: "exit status of an assignment", script: "A=\"$(./a 2> /dev/null)\"\nif [ $? -eq 0 ]; then eval \"$A\"; fi\nsrun python train.py\n", toml: `./a`},
		{name: "group of commands", script: "{\n  A=$(./a)\n  srun python train.py --x \"$A\"\n}\n", toml: `exec python train.py --x \"$A\"`, note: "$A"},
		{name: "group with a redirection", script: "{ srun python train.py; } >out\n", note: "srun python", changes: true, wrapped: "ddpbatch launch"},
		{name: "assignment that fails without set -e", script: "#!/bin/bash\n#SBATCH --ntasks=1\nA=$(sed -n 2p a)\npython train.py $A\n", toml: `"set +e", "A=$(sed -n 2p a)"`, note: "$A"},
		{name: "words behind token", script: "echo \"token not found\" >out\n./a --use_auth_token --lr 1\n./b \"$n_tokens / 2\"\nsrun python train.py\n", toml: "token not found"},
		{name: "password that is a word", script: "./a \"password hunter\"\nsrun python train.py\n", note: "./a", changes: true, wrapped: "password"},
		{name: "key of a cipher that is a word", script: "./a \"encryption_key hunter\"\nsrun python train.py\n", note: "./a", changes: true, wrapped: "encryption_key"},
		{name: "password after a dash", script: "./a \"password -Xy7pQ\"\nsrun python train.py\n", note: "./a", changes: true, wrapped: "password"},
		{name: "MPI from a variable", script: "export SLURM_MPI_TYPE=$MPI\nsrun python train.py\n", note: "SLURM_MPI_TYPE", changes: true, wrapped: "SLURM_MPI_TYPE"},
		{name: "environment of srun", script: "export SLURM_EXPORT_ENV=ALL SLURM_MPI_TYPE=pmi2\nsrun python train.py\n", toml: "mpi = \"pmi2\"\n\n[setup]\nlines = [\"export SLURM_EXPORT_ENV=ALL\", \"export SLURM_MPI_TYPE=pmi2\""},
		{name: "MPI in the environment and in the command", script: "export SLURM_MPI_TYPE=none\nsrun --mpi=pmix python train.py\n", toml: `mpi = "pmix"`},
		{name: "empty environment of srun", script: "export SLURM_EXPORT_ENV=NONE\nsrun python train.py\n", note: "SLURM_EXPORT_ENV", changes: true, wrapped: "ddpbatch launch"},
		{name: "exit status of cd", script: "cd conf\nif [ $? -ne 0 ]; then exit 1; fi\nsrun python train.py\n", toml: `"cd conf; if [ $? -ne 0 ]; then exit 1; fi"`},
		{name: "hours behind days", script: "#SBATCH --time=1-30:10:00\nsrun python train.py\n", toml: `time = "2-6:10:00"`},
		{name: "days without hours", script: "#SBATCH -t 0-48\nsrun python train.py\n", toml: `time = "2-0"`},
		{name: "here-string with a password", script: "read -r NAME PASSWORD <<< 'ada hunter22'\nsrun python train.py\n", note: "read", changes: true, wrapped: "PASSWORD"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			options := testOptions
			options.Wrap, options.Site, options.Args = tt.wrap, cmp.Or(tt.site, "generic"), tt.args
			script := tt.script
			if !strings.HasPrefix(script, "#!") {
				script = head + script
			}
			got, err := Read("job.sh", []byte(script), options)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(got.TOML), tt.toml) {
				t.Errorf("%q is not in\n%s", tt.toml, got.TOML)
			}
			if (got.Changes() > 0) != tt.changes || (len(got.Notes) > 0) != (tt.note != "") {
				t.Errorf("got notes %+v", got.Notes)
			}
			if tt.note != "" && !strings.HasPrefix(got.Notes[0].Text, tt.note) {
				t.Errorf("got %+v, want %q first", got.Notes, tt.note)
			}
			if (got.Script != nil) != (tt.wrapped != "") || !strings.Contains(string(got.Script), tt.wrapped) {
				t.Errorf("%q is not in\n%s", tt.wrapped, got.Script)
			}
			if strings.Contains(string(got.TOML), "hunter22") {
				t.Errorf("the job file has a secret:\n%s", got.TOML)
			}
		})
	}
}

// TestArgumentsReason checks that the notes about arguments of the script recommend --arg only if it has an effect.
func TestArgumentsReason(t *testing.T) {
	for _, tt := range []struct {
		name, script, reason string
		args                 []string
	}{
		{name: "not given", script: "srun python train.py $1", reason: "--arg"},
		{name: "given", script: "srun python train.py \"$SCRATCH/$@\"", args: words("a"), reason: "only the shell of the script"},
		{name: "set by the script", script: "touch $1; [ -e a ] && set -- b; srun python train.py", args: words("a"), reason: "sets its arguments"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			options := testOptions
			options.Args = tt.args
			got, err := Read("job.sh", []byte("#!/bin/bash\n#SBATCH --ntasks=1\n"+tt.script+"\n"), options)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Notes) == 0 || !got.Notes[0].Changes || !strings.Contains(got.Notes[0].Reason, tt.reason) {
				t.Errorf("got notes %+v, want %q", got.Notes, tt.reason)
			}
		})
	}
}

// TestRejectedValues checks the notes about options with a key whose value the key does not accept.
func TestRejectedValues(t *testing.T) {
	for option, key := range map[string]string{
		"--partition=a b": "partition", "--nodelist=a b": "nodelist", "--exclude=a b": "exclude", "--comment=a|b": "comment", "--open-mode=x": "open_mode",
		"--hint=x": "hint", "--mail-type=X": "mail", "--mem=x": "mem",
	} {
		t.Run(option, func(t *testing.T) {
			name, value, _ := strings.Cut(option, "=")
			got, err := Read("job.sh", []byte("#!/bin/bash\n#SBATCH --ntasks=1 "+name+"=\""+value+"\"\nsrun python train.py\n"), testOptions)
			if err != nil {
				t.Fatal(err)
			}
			if want := "not a valid value of slurm." + key; !slices.ContainsFunc(got.Notes, func(n Note) bool { return strings.HasPrefix(n.Text, name) && n.Reason == want && !n.Changes }) {
				t.Errorf("got notes %+v, want %q", got.Notes, want)
			}
			if strings.Contains(string(got.TOML), name) || strings.Contains(string(got.TOML), key+" =") {
				t.Errorf("the job file has the option:\n%s", got.TOML)
			}
		})
	}
}

// FuzzRead checks that the job file is valid for every script.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.sh")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		got, err := Read("job.sh", src, testOptions)
		if err != nil {
			return
		}
		if _, err := jobs.Parse("job.toml", got.TOML); err != nil {
			t.Errorf("%v\nof\n%s\nfrom\n%s", err, got.TOML, src)
		}
		for _, n := range got.Notes {
			if n.Reason == "" || strings.ContainsAny(n.Text, "\n\r") {
				t.Errorf("note %+v", n)
			}
		}
	})
}
