// Command ddpbatch runs distributed training jobs that are described in TOML files. It checks
// a job file, submits it to Slurm, and starts, supervises, and resumes its ranks. It also runs
// jobs on a single machine without Slurm.
//
// A command is a struct of flags with a method Run, such as launchCmd in launch.go. cli.go lists all
// commands. Each has its own file, except for exec and shell (stacks.go), and schema and completion
// (manual.go). A file such as launch_limit.go holds a part of the command in its prefix. The command
// "run" also uses digest.go, nccl_*.go, observer.go, ranklog.go, and threads.go.
//
// The other files serve several commands. For example, program.go holds the streams and the
// environment of a call, job.go loads a job file, rundir.go and runs.go find run directories, ui.go
// defines the format of all terminal output, and exit.go maps errors to the codes of package exitcode.
//
// This package does not train and does not parse the output of Slurm's queries. Packages trainer
// and slurm do.
package main

import (
	"context"
	"os"
)

func main() { os.Exit(main1()) }

func main1() int {
	// Without a current directory, only absolute paths work. program.run reports the error.
	dir, _ := os.Getwd()
	p := &program{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Env: os.Environ(), Dir: dir}
	return p.run(context.Background(), os.Args[1:])
}
