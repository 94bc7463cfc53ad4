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
// Each key is declared once, as a field with tags: most in spec.go, and others next to the checks
// of their table, such as component.go. Checks that involve several keys are in check*.go. From
// the declarations the package also derives the reference of the keys ([Keys]) and the JSON schema
// ([Schema]).
//
// Other packages also use these parts:
//   - [Decode] reads other TOML files, such as site profiles, by the same rules.
//   - [Job.CheckResume] compares a job with the settings in a checkpoint (change.go, digest.go).
//   - [Setup.SetupScript], [Command.TorchrunArgv], [Command.FrameworkArgv], and [ExpandArgv]
//     convert parts of the job to shell code and command lines.
//
// The package does not print, query Slurm, run programs, or open the data set. It does not have a
// list of sites or templates. [Load] reads nothing but the job file. Only [Job.CheckFiles] and
// [Job.CheckProgram] inspect this machine: whether files exist, whether the PATH has the program,
// and whether a script calls the launcher of a framework.
package jobs
