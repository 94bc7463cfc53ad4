// Command ddpbatch takes a training job from a TOML file to a finished,
// resumable run on a Slurm cluster, or on this machine alone.
package main

import "os"

func main() { os.Exit(Main()) }
