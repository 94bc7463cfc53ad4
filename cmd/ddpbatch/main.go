// Command ddpbatch runs distributed training jobs that are described in TOML files. It checks
// a job file, submits it to Slurm, and starts, supervises, and resumes its ranks. It also runs
// jobs on a single machine without Slurm.
//
// Each command has its own file, such as launch.go, with a struct of flags and a method Run. The
// command line in cli.go lists them. Files such as launch_limit.go hold parts of the command in
// their prefix. The command "run" also uses digest.go, nccl_*.go, observer.go, ranklog.go, and
// threads.go. The other files serve several commands: program.go holds the state of a
// call, job.go loads a job file, rundir.go and runs.go find run directories, ui.go defines the
// format of all terminal output, and exit.go maps errors to the codes of package exitcode.
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
