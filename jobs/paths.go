package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ResolvePaths makes the paths of the job absolute, so they do not depend on the working
// directory. Relative paths start at baseDir, the directory of the job file, which is also the
// default of workdir. Names of builtin data, conda environments, and container images remain
// unchanged. command.progress.file remains relative to workdir.
func (j *Job) ResolvePaths(baseDir string) {
	resolve := func(t *Text) {
		if *t != "" {
			*t = Text(ResolvePath(baseDir, *t))
		}
	}
	resolve(&j.Setup.Venv)
	if strings.Contains(string(j.Setup.Conda), "/") {
		resolve(&j.Setup.Conda)
	}
	for i := range j.Setup.Steps {
		step := &j.Setup.Steps[i]
		step.Venv.resolve(baseDir)
		step.Source.resolve(baseDir)
		if strings.Contains(string(step.Conda), "/") {
			step.Conda.resolve(baseDir)
		}
	}
	resolve(&j.Setup.Secrets.File)
	resolve(&j.Log.Prometheus)
	if j.Notify != nil {
		notify := *j.Notify // trials of a sweep share it
		resolve(&notify.WebhookFile)
		j.Notify = &notify
	}
	if j.Setup.Container.hasImageFile() {
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
		j.Command.resolveCheckpointDir(baseDir)
	}
}

// hasImageFile reports whether the image is a file or a directory, judging by its name. Otherwise, it
// is a name that only the runtime can resolve.
func (c *Container) hasImageFile() bool {
	s := string(c.Image)
	switch c.Runtime {
	case ContainerApptainer, ContainerSingularity:
		return s != "" && !IsImageURI(s)
	}
	return strings.HasPrefix(s, "/") || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../") ||
		slices.ContainsFunc(imageSuffixes, func(suffix string) bool { return strings.HasSuffix(s, suffix) })
}

// IsImageURI reports whether an image of Apptainer or Singularity is a URI, not the path of a file.
func IsImageURI(image string) bool {
	transport, _, _ := strings.Cut(image, ":")
	return strings.Contains(image, "://") || slices.Contains([]string{"docker-archive", "docker-daemon", "oci", "oci-archive"}, transport)
}

// imageSuffixes are the suffixes of SquashFS files, and of images of Apptainer.
var imageSuffixes = []string{".sif", ".sqsh", ".sqfs", ".squashfs"}

// ResolvePath returns a path of the job file as an absolute path. Relative paths start at
// baseDir.
func ResolvePath(baseDir string, path Text) string {
	p := string(path)
	if strings.HasPrefix(p, builtinPrefix) || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(baseDir, p)
}

// CheckFiles checks that the files and directories in the job file exist: the data sets, the
// initial weights, the virtual environment, the secrets file, the webhook file, the container image,
// and the working directory. Relative paths start at baseDir. The error has type [Diagnostics].
// CheckFiles does not check conda environments, which may exist only on the cluster.
func (j *Job) CheckFiles(baseDir string) error {
	var found Diagnostics
	check := func(key string, path Text, checkPath func(path string) error) {
		if path == "" || strings.HasPrefix(string(path), builtinPrefix) {
			return
		}
		if err := checkPath(ResolvePath(baseDir, path)); err != nil {
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
	if j.Notify != nil {
		check("notify.webhook_file", j.Notify.WebhookFile, checkFile)
	}
	check("setup.secrets.file", j.Setup.Secrets.File, checkFile)
	if j.Setup.Container.hasImageFile() {
		checkImage := checkFile
		switch j.Setup.Container.Runtime {
		case ContainerApptainer, ContainerSingularity:
			checkImage = checkFileOrDirectory
		case ContainerCharliecloud:
			checkImage = checkImageDirectory
		}
		check("setup.container.image", j.Setup.Container.Image, checkImage)
	}
	if t := j.Train; t != nil {
		data := checkFile
		switch t.Data.Kind {
		case DataIDX:
			data = checkDirectory
		case DataTokens:
			data = j.fileCache().checkFileOrPattern
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

func checkFile(path string) error { return checkExists(path, false) }

func checkDirectory(path string) error { return checkExists(path, true) }

// checkFileOrDirectory returns an error unless path exists.
func checkFileOrDirectory(path string) error {
	if checkDirectory(path) == nil {
		return nil
	}
	return checkFile(path)
}

// checkImageDirectory returns an error unless path is an image of Charliecloud: a directory or a
// SquashFS file.
func checkImageDirectory(path string) error {
	if slices.ContainsFunc(imageSuffixes, func(suffix string) bool { return strings.HasSuffix(path, suffix) }) {
		return checkFile(path)
	}
	return checkDirectory(path)
}

// checkVenv returns an error unless path is a virtual environment with an activation script.
func checkVenv(path string) error {
	if err := checkDirectory(path); err != nil {
		return err
	}
	const script = "bin/activate"
	if _, err := os.Stat(filepath.Join(path, script)); err != nil {
		return fmt.Errorf("%q has no %s", path, script)
	}
	return nil
}

// checkExists returns an error unless path is a file or, with directory, a directory.
func checkExists(path string, directory bool) error {
	want := "file"
	if directory {
		want = "directory"
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no such %s: %q", want, path)
	case err != nil:
		return fmt.Errorf("stat %q: %w", path, errors.Unwrap(err))
	case info.IsDir() != directory:
		return fmt.Errorf("%q is not a %s", path, want)
	}
	return nil
}

// checkFileOrPattern returns an error unless path is a file or its last part is a pattern that
// matches a file. In directory names, "*" is literal.
func (c *fileCache) checkFileOrPattern(path string) error {
	err := checkFile(path)
	dir, pattern := filepath.Dir(path), filepath.Base(path)
	if err == nil || !strings.ContainsAny(pattern, `*?[\`) {
		return err
	}
	if err := checkDirectory(dir); err != nil {
		return err
	}
	return c.checkPattern(dir, pattern)
}
