// Package manual writes what people read and shells know of the program, from what the
// program itself is made of: the command line as [Describe] finds it in kong's model,
// the keys of the job file ([jobs.Keys]), the exit codes, and the [Variables] of the
// environment. From these it makes the pages of docs/reference, manual pages, and the
// completion of bash, zsh and fish.
//
// The same program always gives the same bytes, so that a test can hold the written
// pages to it. The package does not write files, and knows no command by its name.
package manual
