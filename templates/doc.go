// Package templates renders the batch script of a job from a single text template,
// job.sbatch.tmpl, which reads like the script itself. Differences between sites come from
// their profiles (package sites).
//
// The package guarantees the following:
//   - The same job gives the same bytes.
//   - Slurm and the shell receive each value exactly as in the job, whatever characters it
//     contains.
//   - No value can add a line, an option, or a command. Control characters are rejected, and
//     each value is quoted by the rules of its reader. #SBATCH lines have different quoting
//     rules from the shell.
//
// Only the setup contains commands: setup.lines of the job and of the profile, which the script
// contains unchanged, and the steps in setup.steps that run outside the ranks
// ([jobs.Setup.SetupScript]).
//
// The package does not submit scripts, check whether the site has the requested resources, or
// interpret what the job runs. The script ends with `ddpbatch launch`, which replaces the
// shell and reads everything else from the run directory. The package never reads the
// variables in [setup.env], which may be secrets. Variables of setup.steps are in the script.
package templates
