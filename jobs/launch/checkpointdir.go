package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// makeCheckpointDir creates the directory for the program's checkpoints, and returns its path. The
// program resumes from the files in it, and PyTorch's files can run code. Therefore an existing
// directory must belong to this user or root, and must not be writable by every user. Say receives a
// warning if a group of this user can write to it, and if another user can replace it.
func makeCheckpointDir(c *jobs.Command, d rundir.Dir, runID string, say func(string)) (string, error) {
	path := c.CheckpointDirIn(d.Path, runID)
	if path == "" {
		path = d.ProgramCheckpoints()
		err := d.MakeProgramCheckpoints()
		if err == nil {
			_, err = checkCheckpointDir(path)
		}
		if err != nil {
			return "", fmt.Errorf("use checkpoint directory %q: %w", path, err)
		}
		return path, nil
	}
	if err := createCheckpointDir(path); err != nil {
		return "", hints.Errorf("set command.checkpoint_dir to a directory that you can write to", "create the checkpoint directory: %w", err)
	}
	info, err := checkCheckpointDir(path)
	if err != nil {
		return "", hints.Errorf("set command.checkpoint_dir to a directory of your own, for example to "+filepath.Join(filepath.Dir(path), "NAME", "{run_id}"),
			"use checkpoint directory %q: %w", path, err)
	}
	if safefile.CreatorsOf(info) == safefile.SharedGroup {
		say(fmt.Sprintf("warning: members of your group can change the checkpoints in %q, which could run code in this job; run `chmod g-w %s` if they must not",
			path, jobs.ShellQuote(path)))
	}
	warnPreparedDir(path, say)
	return path, nil
}

// warnPreparedDir warns if another user can replace a checkpoint directory that the checks accept, for example
// in a directory of a member of a group in a place such as /tmp.
func warnPreparedDir(path string, say func(string)) {
	if e, ok := rundir.PreparedAbove(path); ok {
		say(fmt.Sprintf("warning: the checkpoints in %q could run code in this job: %s; set command.checkpoint_dir to a different directory if that user must not", path, e))
	}
}

// createCheckpointDir creates the directory and its parents. The umask decides who can read it.
// Only this user can write to it. It returns an error if another user may have prepared the parent
// of a new directory; see [rundir.CheckParent].
func createCheckpointDir(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := rundir.CheckParent(filepath.Dir(path)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	err := os.Mkdir(path, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// checkLocalCheckpointDir checks the checkpoint directory of a program on this node. The launcher has checked
// it on its own node only, and a path such as /tmp/checkpoints is a different directory on each node. If the
// directory is missing, checkLocalCheckpointDir creates it: another user could otherwise do so before the
// program uses it. A directory that neither this user nor another one can create, for example in a container
// or on an automounter, need not exist. In a container, root may have no mapping.
func checkLocalCheckpointDir(path string) error {
	_, err := checkCheckpointDir(path, safefile.OverflowUser())
	if errors.Is(err, fs.ErrNotExist) {
		if err = createCheckpointDir(path); err == nil { // fails below if the path is a link to a missing directory
			_, err = checkCheckpointDir(path, safefile.OverflowUser())
		} else if (errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist)) && !rundir.CanOthersCreate(path) {
			return nil
		}
	}
	if err != nil {
		return hints.Errorf("set command.checkpoint_dir to a directory that all nodes share", "use checkpoint directory %q: %w", path, err)
	}
	return nil
}

// checkCheckpointDir checks the owner and the mode of a checkpoint directory. It also checks the owners of
// links at its path, and of links and directories above it, because they can replace it. It accepts the
// given owners, root, and this user. It returns the attributes of the directory.
func checkCheckpointDir(path string, owners ...int) (fs.FileInfo, error) {
	link, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, errors.New("it is not a directory")
	}
	for _, i := range []fs.FileInfo{link, info} {
		if uid, ok := safefile.Owner(i); ok && !safefile.IsTrusted(uid) && !slices.Contains(owners, uid) {
			return nil, fmt.Errorf("it belongs to user %d, whose checkpoints could run code in this job", uid)
		}
	}
	if err := rundir.CheckLinks(path); err != nil {
		return nil, err
	}
	if err := rundir.CheckParent(filepath.Dir(path)); err != nil { // its owner can replace the directory
		return nil, err
	}
	// The sticky bit does not keep other users from adding checkpoints.
	if info.Mode().Perm()&0o002 != 0 {
		return nil, fmt.Errorf("every user can add checkpoints to it, which could run code in this job (mode %s)", safefile.Octal(info.Mode()))
	}
	return info, nil
}
