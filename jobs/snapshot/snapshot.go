// Package snapshot keeps the code that a run was submitted with: a copy of the
// folder as it was, its digest, and what git says about it.
//
// It promises that a copy is there whole or not at all and can be read by its
// owner only; that it has only regular files and symbolic links, and nothing
// from outside the folder; that a file which changed while it was copied is not
// kept in a mixture of two states; and that a file of the copy that was changed
// later is found and named.
//
// In a git work tree the tracked files are copied, as they are on disk, and the
// untracked ones that are not ignored; submodules and repositories inside are
// taken in the same way. Elsewhere, or without git, or in a folder that git
// ignores as a whole, it is all files but version control's and the caches of
// tools. Empty folders, times, owners and permissions other than the executable
// bit are not kept.
//
// A symbolic link to something in the copy leads there in the copy. Any other
// (a link to a data set) is kept as an absolute link to where it led, and is
// named in the manifest: what lies there is not copied, and may change.
//
// It does not keep data, checkpoints or environments (there are limits, to say
// so early), never runs a shell, asks no remote repository, and does not watch
// for files that are added to a copy later. It does not wait for the disk: a
// copy that a power failure damaged is found by Verify.
package snapshot

import ()

// Limits of a copy where the caller names none.
const (
	DefaultMaxFiles = 10_000
	DefaultMaxBytes = 256 << 20
)

// Names inside a snapshot and beside it. Take passes over files of this prefix:
// the list of a snapshot that is copied itself, and the leftovers of a copy that
// was killed.
const (
	ownPrefix   = ".ddpbatch-"
	listName    = ownPrefix + "snapshot"
	tempPattern = ownPrefix + "*" // of os.MkdirTemp
)

// Options say what to copy. The zero value has the default limits, and finds no
// git.
type Options struct {
	// Environ is the environment for git ("PATH=/usr/bin"), which is looked for
	// in its PATH.
	Environ []string
	// Exclude names folders (or files) that are not copied, like the run
	// directories: absolute, or relative to the folder that is copied.
	Exclude  []string
	MaxFiles int   // 0 means DefaultMaxFiles
	MaxBytes int64 // of all files; 0 means DefaultMaxBytes
}

// Manifest is what is known of a snapshot.
type Manifest struct {
	Files int   `json:"files"` // regular files and symbolic links
	Bytes int64 `json:"bytes"` // in the regular files
	// SHA256 is the digest, in hex, over path, mode and content digest of each
	// file in the order of paths: that of the snapshot's file .ddpbatch-snapshot,
	// as sha256sum prints it.
	SHA256 string `json:"sha256"`
	// Outside has the links that lead to something which is not in the snapshot.
	Outside []string `json:"outside,omitempty"`
	Git     Git      `json:"git"`
}

// Git is what git says about a folder; the zero value is for one that is in no
// work tree.
type Git struct {
	WorkTree bool   `json:"work_tree"`
	Folder   string `json:"folder,omitempty"` // inside the work tree, empty for its top
	Commit   string `json:"commit,omitempty"` // full hash, empty before the first commit
	Branch   string `json:"branch,omitempty"` // empty if HEAD is detached
	// Remote is the address of the branch's remote, or else of origin, or of the
	// only one there is, without user, password and query.
	Remote string `json:"remote,omitempty"`
	// Dirty says that a tracked file in the folder was changed, or that there is
	// an untracked one which is not ignored.
	Dirty bool `json:"dirty"`
}
