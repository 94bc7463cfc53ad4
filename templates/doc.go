// Package templates writes the batch script of a job: a text template per site,
// embedded as *.sbatch.tmpl and readable as the script it becomes.
//
// It promises that the same job gives the same bytes; that every value arrives in
// Slurm, and in the shell, exactly as it stands in the job, whatever it looks
// like; and that no value can add a line, an option or a command, for control
// characters are refused in all of them and each is quoted by the rules of its
// reader. Those of #SBATCH lines are not the shell's.
//
// It does not know how a script is submitted, whether the site has what the job
// asks for, or what the job computes: the script ends by becoming
// `ddpbatch launch`, which reads the rest from the run directory. Variables of
// [setup.env], which may be secret, never come here.
package templates
