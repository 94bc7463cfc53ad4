// Package sites holds the profiles of computing centres: what a job may ask for
// there, what it must say, and how GPUs, cores, the network and containers are
// asked for. A profile is one TOML file that a centre can publish; those here
// were written from the centres' public documents, which each names.
//
// It promises that a profile with a mistake is refused with the place of it, that
// a value that the job file gives is never replaced by a profile's, and that
// [Profile.Lint] refuses only what the profile says is impossible.
//
// It does not ask Slurm: limits change, and the profile's date says when they
// were read. It renders nothing and starts nothing.
package sites
