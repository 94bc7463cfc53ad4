// Package slurm wraps Slurm's command-line tools. It has four parts:
//
//   - A [Client] runs sbatch, squeue, sacct, sacctmgr, scontrol, scancel, and sinfo to
//     submit, find, monitor, requeue, and cancel jobs.
//   - [TaskFromEnv] and [AllocationFromEnv] read the environment of a rank and of a batch
//     script. [Step] builds the command line of srun.
//   - [ExpandHosts], [FoldHosts], and [ParseTaskEnd] read and write Slurm's text formats.
//   - [ExplainPending] and the hints of [CommandError] explain Slurm's messages (hints.go). The
//     hints name keys of the job file, not options of sbatch.
//
// It guarantees:
//
//   - A [Task] is read from the variables of one step, and these agree with each other,
//     also in job arrays and heterogeneous jobs.
//   - The states of up to 8,000 jobs take at most two calls.
//   - A job that Slurm does not list is [StateUnknown], never failed.
//   - After a failed submission, [MaybeSubmitted] reports whether a job may exist, and
//     [Client.FindByComment] finds it.
//   - No program runs through a shell, with a terminal as its standard input, or without
//     a time limit.
//
// It is written for Slurm 22.05 to 26.05. It requires neither accounting nor Slurm's JSON
// plugins.
//
// # Job IDs
//
// A job ID is a number, such as "18". A task of a job array is "18_3"; while it runs, it
// also has a separate number. The number of an array refers to all of its tasks:
// [Client.State] aggregates them, and [Client.WaitAll] accepts any mix of IDs.
//
// # Safe submission
//
// To submit exactly once, give each submission a unique comment. If a submission fails
// and [MaybeSubmitted] reports true, call [Client.FindByComment] when the controller
// responds again. Submit again only if no job has the comment.
//
// # Non-goals
//
// The package does not write batch scripts, record submissions, retry submissions, or
// start steps. It does not support federations.
package slurm
