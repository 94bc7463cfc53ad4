// Package templates writes the batch script of a job from one text template,
// job.sbatch.tmpl, which is readable as the script it becomes. What differs between
// sites comes from their profiles (package sites).
//
// It promises that the same job gives the same bytes; that every value arrives in
// Slurm, and in the shell, exactly as it stands in the job, whatever it looks
// like; and that no value can add a line, an option or a command, for control
// characters are refused in all of them and each is quoted by the rules of its
// reader. Those of #SBATCH lines are not the shell's. Only the lines of
// setup.lines are commands, as they are meant to be, and stand there as they are.
//
// It does not know how a script is submitted, whether the site has what the job
// asks for, or what the job computes: the script ends by becoming
// `ddpbatch launch`, which reads the rest from the run directory. Variables of
// [setup.env], which may be secret, never come here.
package templates
