// Package jobs parses and checks job files. A job file is a TOML file that describes a
// training job or a sweep of jobs. The package combines the file with values that override it
// ([Override]) and returns a [Job] for the rest of ddpbatch.
//
// [Load] guarantees the following:
//   - The Job is complete: all defaults are set, and all values are within their documented
//     bounds.
//   - No string in the Job contains a control character, so no string can add a line to a
//     script or send an escape sequence to a terminal. Only a [Script], which is shell code, can
//     contain line breaks and tabs.
//   - For an invalid file, the error contains all errors as [Diagnostics] in file order, each
//     with its line, its column, the source line, and a fix.
//   - The same bytes always give the same result.
//
// A value in [setup.env] may be a secret, so no diagnostic quotes it.
//
// [Decode] reads other TOML files, such as site profiles, by the same rules.
//
// The package does not print, read the environment, query Slurm, or open the data set. It does
// not have a list of sites or templates. [Job.CheckFiles] checks only whether files exist.
package jobs
