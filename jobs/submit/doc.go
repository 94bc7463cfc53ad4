// Package submit hands a run, or the elements of a sweep, to Slurm: once.
//
// It promises that one submission makes one job, whatever happens to sbatch, to
// its answer or to this process: the submission's id stands in the run directory
// before sbatch is called, and in the job's comment, and nothing is sent again
// before Slurm was asked for it. A run whose job is queued or running is refused.
// What runs is what was submitted: job file, site, script and, if the job asks for
// it, the user's code are kept in the run directory, and the record has the digest
// of the program.
//
// [Submitter.Repair] rebuilds a damaged record.
//
// It prints nothing, does not wait for the job, and does not start anything
// itself.
package submit
