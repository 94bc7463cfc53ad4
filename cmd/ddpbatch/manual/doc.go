// Package manual generates the reference pages, the manual pages, and the shell completions of
// the program. It supports bash, zsh, and fish. [Describe] reads the command line from kong's
// model. The other sources are the keys of the job file ([jobs.Keys]), the exit codes, and the
// environment [Variables].
//
// The output is deterministic, so that a test can compare it with the files in docs/reference.
// The package does not write files and does not depend on specific commands.
package manual
