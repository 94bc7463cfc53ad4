// Command ddpbatch takes a training job from a TOML file to a finished,
// resumable run on a Slurm cluster, or on this machine alone.
//
// There is one small file per command. Every rule of what the terminal shows is
// in ui.go, every exit code in exit.go. Nothing here knows how a rank trains or
// how Slurm is asked: that is in the packages.
package main

import (
	"context"
	"os"
)

func main() { os.Exit(main1()) }

func main1() int {
	// Without a current directory, only absolute paths work; program.run says so.
	dir, _ := os.Getwd()
	p := &program{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Env: os.Environ(), Dir: dir}
	return p.run(context.Background(), os.Args[1:])
}
