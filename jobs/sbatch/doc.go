// Package sbatch reads a batch script that somebody has written for sbatch, and makes a
// job file of it: directives, modules, environment, and the srun, mpirun, torchrun or
// python line.
//
// What it does not carry over it tells, with line and reason ([Note]); nothing is dropped
// in silence but what has no effect on a job, such as echo. It runs nothing of the
// script and never takes a value that only a shell on the node could know: a command
// line that needs one is carried over as a line of shell, and anything else is told.
package sbatch
