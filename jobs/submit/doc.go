// Package submit submits a run, or the trials of a sweep, to Slurm exactly once.
//
// The package guarantees the following:
//   - One submission creates at most one job, even if sbatch, its reply, or this process
//     fails. The submission ID is in the run directory before the call of sbatch, and in the
//     job's comment. The package queries Slurm for this comment before it submits again.
//   - It rejects a run whose job is queued or running.
//   - The job runs what was submitted. The run directory contains the job file, the site
//     profile, the batch script, and, on request, the user's code. The record contains the
//     digest of the ddpbatch executable.
//
// [Submitter.Repair] rebuilds a corrupt record.
//
// The package does not print, wait for the job, or start ranks.
package submit
