// Package snapshot stores the code that a run was submitted with: a copy of the directory, its
// digest, and git's information about it.
//
// The package guarantees the following:
//   - A copy is created atomically, and only its owner can read it.
//   - A copy contains only regular files and symbolic links, and nothing from outside the
//     directory.
//   - A file that changes during the copy is an error, so the copy never mixes two states of a
//     file.
//   - [Verify] finds and names a file of the copy that was changed later.
//
// In a git work tree, the package copies the tracked files as they are on disk, and the
// untracked files that are not ignored. The same applies to submodules and to repositories
// inside the directory. Outside a work tree, without git, or in a directory that git ignores
// completely, it copies all files except for data of version control systems and caches of
// tools. It does not preserve empty directories, times, owners, or permissions other than the
// executable bit.
//
// A symbolic link to a copied file leads to that file's copy. All other links, for example to
// a data set, become absolute links to their original target, and the manifest lists them.
// Their targets are not copied and may change.
//
// The package is not for data, checkpoints, or environments. Its limits detect them early. It
// does not run a shell, connect to a remote repository, or detect files that are added to a
// copy later. It does not sync the copy to disk: Verify finds a copy that a power failure
// corrupted.
package snapshot

// Default limits of a copy.
const (
	defaultMaxFiles = 10_000
	defaultMaxBytes = 256 << 20
)

// Names in a snapshot and next to it. Take skips files with this prefix: the list of a
// snapshot that is itself copied, and the leftovers of a killed copy.
const (
	ownPrefix = ".ddpbatch-"
	listName  = ownPrefix + "snapshot"
)

// Options select the files to copy. The zero value has the default limits and does not find
// git.
type Options struct {
	// Environ is the environment for git, such as "PATH=/usr/bin". Its PATH must contain git.
	Environ []string
	// Exclude lists directories or files that are not copied, such as run directories. Paths
	// are absolute or relative to the source directory.
	Exclude  []string
	MaxFiles int   // 0 means defaultMaxFiles
	MaxBytes int64 // total size of all files; 0 means defaultMaxBytes
}

// A Manifest describes a snapshot.
type Manifest struct {
	Files int   `json:"files"` // regular files and symbolic links
	Bytes int64 `json:"bytes"` // total size of the regular files
	// SHA256 is the hexadecimal digest of the file .ddpbatch-snapshot, as printed by
	// sha256sum. The file lists the path, mode, size, and content digest of each file in the
	// order of paths.
	SHA256 string `json:"sha256"`
	// Outside lists the links that lead outside the snapshot.
	Outside []string `json:"outside,omitempty"`
	Git     Git      `json:"git"`
}

// Git is git's information about a directory. The zero value means that the directory is not
// in a work tree.
type Git struct {
	WorkTree bool   `json:"work_tree"`
	Subdir   string `json:"folder,omitempty"` // relative to the work tree; empty for its top
	Commit   string `json:"commit,omitempty"` // full hash; empty before the first commit
	Branch   string `json:"branch,omitempty"` // empty if HEAD is detached
	// Remote is the URL of the branch's remote, of origin, or of the only remote, in this
	// order. It does not contain a password or a query.
	Remote string `json:"remote,omitempty"`
	// Dirty reports whether a tracked file in the directory has changed, or an untracked file
	// exists that is not ignored.
	Dirty bool `json:"dirty"`
}
