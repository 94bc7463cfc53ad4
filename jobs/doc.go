// Package jobs is the job spec: the TOML file in which a person describes one
// training job, or a sweep of them, the values that may stand over it ([Override]),
// and the [Job] that the rest of the program reads.
//
// [Load] promises four things. A Job it returns is complete: every default is
// filled in and every value is inside its documented bounds. No string in it
// holds a control character, so none can add a line to a script or an escape
// to a terminal. A file with mistakes yields all of them at once, as
// [Diagnostics] in file order, each with line, column, the source line and what
// would be right. And the same bytes always give the same answer.
//
// A value of [setup.env] may be a secret, so no diagnostic quotes one.
//
// Other TOML files of the program, the profiles of sites, are read by the same
// rules: see [Decode].
//
// The package does not print, does not read the environment, does not know
// which sites or templates exist, does not talk to Slurm and does not open the
// data set; [Job.CheckFiles] only looks whether the named files are there.
package jobs
