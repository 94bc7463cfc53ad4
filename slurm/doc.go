// Package slurm speaks to Slurm in Slurm's own terms: it expands and folds host
// lists, reads the place of a rank from the environment of an srun step, cleans
// an environment before a submission, reads what srun says of tasks that end, and
// runs the client programs sbatch, squeue, sacct and scancel.
//
// It promises that a [Task] is built from the variables of one step only and
// that they agree with each other, in job arrays and heterogeneous jobs, too;
// that the states of any number of jobs cost two calls at most; that a job whose
// state Slurm does not tell is [StateUnknown] and never failed; that a caller
// knows whether a failed submission may have made a job ([Uncertain]) and can
// find it ([Client.FindByComment]); and that no program is ever started through
// a shell, with a terminal on its standard input, or without a time limit. It is
// written against Slurm 22.05 to 26.05 and needs neither accounting nor JSON.
//
// # Ids
//
// A job is named by its number, as "18". An element of a job array is named by
// the array's number and its index, as "18_3", and while it runs also by a
// number of its own. The number of an array stands for all of its elements:
// [Client.State] sums them up, [Client.Elements] tells them one by one, and
// [Client.WaitAll] follows any of these with one call for all.
//
// # Submitting once
//
// A submission that should be safe to repeat carries a comment that no other
// has. When it fails and is [Uncertain], the caller asks FindByComment once the
// controller answers again, and submits anew only if there is nothing.
//
// It does not know what a job computes, writes no batch script, keeps no record
// of what was submitted, retries nothing but a look at the queue, and starts no
// step by itself: [Step.SrunArgv] only says how to. Federations are left out.
package slurm
