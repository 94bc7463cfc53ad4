package jobs

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// ResolvePaths makes all paths of the job absolute, so they do not depend on the working
// directory. Relative paths start at baseDir, the directory of the job file, which is also the
// default of workdir. Names of builtin data and conda environments remain unchanged.
func (j *Job) ResolvePaths(baseDir string) {
	resolve := func(t *Text) {
		if *t != "" {
			*t = Text(Resolved(baseDir, *t))
		}
	}
	resolve(&j.Setup.Venv)
	if strings.Contains(string(j.Setup.Conda), "/") {
		resolve(&j.Setup.Conda)
	}
	resolve(&j.Setup.Secrets.File)
	resolve(&j.Log.Prometheus)
	if isImageFile(j.Setup.Container.Image) {
		resolve(&j.Setup.Container.Image)
	}
	if j.Train != nil {
		resolve(&j.Train.Model.Weights)
		resolve(&j.Train.Data.Path)
		resolve(&j.Train.Data.EvalPath)
	}
	if j.Command != nil {
		setDefault(&j.Command.Workdir, ".")
		resolve(&j.Command.Workdir)
	}
}

// isImageFile reports whether a container image is a file, judging by its name. Otherwise, it
// is a name that only the runtime can resolve.
func isImageFile(image Text) bool {
	s := string(image)
	return strings.HasPrefix(s, "/") || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../") ||
		strings.HasSuffix(s, ".sif") || strings.HasSuffix(s, ".sqsh")
}

// Resolved returns a path of the job file as an absolute path. Relative paths start at
// baseDir.
func Resolved(baseDir string, path Text) string {
	p := string(path)
	if strings.HasPrefix(p, builtinPrefix) || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(baseDir, p)
}

// CheckFiles checks that the files and directories in the job file exist: the data sets, the
// initial weights, the virtual environment, the secrets file, the container image, and the
// working directory. Relative paths start at baseDir. The error has type [Diagnostics].
// CheckFiles does not check conda environments, which may exist only on the cluster.
func (j *Job) CheckFiles(baseDir string) error {
	var found Diagnostics
	check := func(key string, path Text, checkPath func(path string) error) {
		if path == "" || strings.HasPrefix(string(path), builtinPrefix) {
			return
		}
		if err := checkPath(Resolved(baseDir, path)); err != nil {
			d := j.At(key)
			d.Message = fmt.Sprintf("%s: %s", key, err)
			switch {
			case strings.HasPrefix(string(path), "~"):
				d.Allowed = `"~" is not expanded: write the absolute path`
			case strings.Contains(string(path), "$"):
				d.Allowed = `variables such as "$HOME" are not expanded: write the absolute path`
			case !filepath.IsAbs(string(path)):
				d.Allowed = "a relative path starts at the directory of the job file"
			}
			found = append(found, d)
		}
	}
	check("setup.venv", j.Setup.Venv, checkVenv)
	check("setup.secrets.file", j.Setup.Secrets.File, checkFile)
	if isImageFile(j.Setup.Container.Image) {
		check("setup.container.image", j.Setup.Container.Image, checkFile)
	}
	if t := j.Train; t != nil {
		data := checkFile
		switch t.Data.Kind {
		case DataIDX:
			data = checkDirectory
		case DataTokens:
			data = checkFileOrPattern
		}
		check("train.model.weights", t.Model.Weights, checkFile)
		check("train.data.path", t.Data.Path, data)
		check("train.data.eval_path", t.Data.EvalPath, data)
	}
	if c := j.Command; c != nil {
		check("command.workdir", c.Workdir, checkDirectory)
	}
	if len(found) == 0 {
		return nil
	}
	slices.SortStableFunc(found, func(a, b Diagnostic) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column)
	})
	return found
}
