// Package manual generates the reference pages, the manual pages, and the shell completions of
// the program. Its sources are the command line, which [Describe] reads from kong's model, the
// keys of the job file ([jobs.Keys]), the exit codes, and the environment [Variables]. It
// supports bash, zsh, and fish.
//
// The output is deterministic, so that a test can compare it with the files in docs/reference.
// The package does not write files and does not depend on specific commands.
package manual
