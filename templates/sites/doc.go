// Package sites reads the profiles of computing centers. A profile describes which resources a
// job may request, which keys it must set, and how to request GPUs, cores, the network, and
// containers. It is a single TOML file that a center can publish. The embedded profiles come
// from the public documents of the centers, which each profile lists.
//
// The package guarantees the following:
//   - An invalid profile is rejected with the position of the error.
//   - A profile that other users can change is rejected, because its lines run as the user
//     ([ErrWritable], access.go).
//   - [Profile.Apply] sets only values that the job file does not set (lint.go).
//   - [Profile.Lint] rejects only values that are impossible according to the profile. Values that
//     are probably not intended are warnings ([Profile.Doubts]).
//
// The package does not query Slurm, render scripts, or start processes. Limits change, and the
// date in a profile states when they were read.
package sites
