// Package slurm speaks to Slurm in Slurm's own terms: it expands and folds host
// lists, reads the place of a rank from the environment of an srun step, cleans
// an environment before a submission, and runs the client programs sbatch,
// squeue, scontrol, sacct and scancel.
//
// It promises that a [Task] is built from the variables of one step only and
// that they agree with each other; that a job whose state Slurm does not tell is
// [StateUnknown] and never failed; and that no program is ever started through a
// shell, with a terminal on its standard input, or without a time limit. It is
// written against Slurm 22.05 to 26.05 and needs neither accounting nor JSON.
//
// It does not know what a job computes, writes no batch script, keeps no record
// of what was submitted, and starts no step by itself: [Step.SrunArgv] only says
// how to. Federations, job arrays and heterogeneous jobs are left out.
package slurm
