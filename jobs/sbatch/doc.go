// Package sbatch converts a user's batch script to a job file. It converts directives,
// modules, environment variables, and the srun, mpirun, torchrun, or python command.
//
// It reports each line that it does not convert, with the reason ([Note]). It silently drops
// only commands that do not affect the job, such as echo.
//
// The package does not run any part of the script, and it does not guess values that are known
// only to a shell on the node. If the command contains such a value, it becomes a shell
// command in argv. Everything else with such a value is reported.
package sbatch
