// Command ddpbatch runs distributed training jobs that are described in TOML files. It checks
// a job file, submits it to Slurm, and starts, supervises, and resumes its ranks. It also runs
// jobs on a single machine without Slurm.
//
// Each command has its own file. The format of all terminal output is defined in ui.go, and
// the exit codes are defined in exit.go. This package does not train and does not parse
// Slurm's output. Packages trainer and slurm do.
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
