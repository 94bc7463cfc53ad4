package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// File modes in git's format. A copy has no other permissions.
const (
	modeFile = "100644"
	modeExec = "100755"
	modeLink = "120000"
)

// maxLine is the maximum size of a line of the list in bytes. A path has up to 4,096 bytes,
// and quoting can expand each to four characters.
const maxLine = 17 << 10

// listEntry is one line of a snapshot's file list.
type listEntry struct {
	mode string
	sum  string // hexadecimal SHA-256 digest of the content or the link target
	size int64  // bytes; 0 for a link
	path string
}

// formatList returns the file list: mode, digest, size in bytes, and quoted path per line.
func formatList(entries []*entry) []byte {
	var b bytes.Buffer
	for _, e := range entries {
		line := listEntry{modeLink, e.sum, 0, e.path}
		if mode := e.info.Mode(); mode.IsRegular() {
			line.mode, line.size = modeFile, e.info.Size()
			if mode.Perm()&0o100 != 0 {
				line.mode = modeExec
			}
		}
		fmt.Fprintf(&b, "%s %s %d %s\n", line.mode, line.sum, line.size, strconv.QuoteToASCII(line.path))
	}
	return b.Bytes()
}

// parseList parses the output of formatList.
func parseList(text string) ([]listEntry, error) {
	var all []listEntry
	for text != "" {
		line, rest, ended := strings.Cut(text, "\n")
		wrong := fmt.Errorf("line %d is corrupt", len(all)+1)
		fields := strings.SplitN(line, " ", 4)
		if !ended || len(fields) != 4 || len(fields[1]) != 64 {
			return nil, wrong
		}
		size, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil || size < 0 || fields[0] != modeFile && fields[0] != modeExec && fields[0] != modeLink {
			return nil, wrong
		}
		path, err := strconv.Unquote(fields[3])
		if err != nil || !filepath.IsLocal(path) || len(all) > 0 && all[len(all)-1].path >= path {
			return nil, wrong
		}
		all = append(all, listEntry{fields[0], fields[1], size, path})
		text = rest
	}
	return all, nil
}

// Verify checks that a snapshot still matches its manifest. The error names the first file, in
// the order of paths, that was changed or is missing. Verify ignores added files, such as
// files that the job wrote before it was requeued.
func Verify(ctx context.Context, dst string, m Manifest) error {
	if err := verify(ctx, dst, m); err != nil {
		return fmt.Errorf("verify snapshot %q: %w", dst, err)
	}
	return nil
}

const resubmitHint = "submit again: the code differs from what was submitted"

func verify(ctx context.Context, dst string, m Manifest) error {
	if !filepath.IsAbs(dst) {
		return errors.New("path is not absolute")
	}
	root, err := safefile.OpenRoot(dst)
	if err != nil {
		return err
	}
	defer root.Close()
	text, err := readList(root, int64(m.Files)*maxLine)
	if err != nil {
		return err
	}
	if digestOf(text) != m.SHA256 {
		return hints.Errorf(resubmitHint, "file list %q has changed", listName)
	}
	files, err := parseList(string(text))
	if err != nil {
		return fmt.Errorf("%q: %w", listName, err)
	}
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		what, err := compareFile(root, file)
		if err != nil {
			return err
		}
		if what != "" {
			return hints.Errorf(resubmitHint, "%q %s", file.path, what)
		}
	}
	return nil
}

func readList(root *os.Root, limit int64) ([]byte, error) {
	info, err := root.Lstat(listName)
	if notExists(err) {
		return nil, hints.Errorf(resubmitHint, "file list %q is missing", listName)
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, hints.Errorf(resubmitHint, "file list %q has changed", listName)
	}
	f, err := openRegular(root, listName, info)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// compareFile returns how a file differs from its entry in the list, or an empty string.
func compareFile(root *os.Root, want listEntry) (string, error) {
	info, err := root.Lstat(want.path)
	switch {
	case notExists(err):
		return "is missing", nil
	case err != nil:
		return "", err
	case info.Mode()&fs.ModeSymlink != 0 && want.mode == modeLink:
		link, err := root.Readlink(want.path)
		if err == nil && digestOf([]byte(link)) != want.sum {
			return "has a different target", nil
		}
		return "", err
	case !info.Mode().IsRegular() || want.mode == modeLink:
		return "has a different file type", nil
	case info.Mode().Perm()&0o100 != 0 != (want.mode == modeExec):
		return "has a different mode", nil
	case info.Size() != want.size:
		return "has changed", nil
	}
	f, err := openRegular(root, want.path, info)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, io.LimitReader(f, want.size+1)); err != nil {
		return "", err
	}
	if hex.EncodeToString(hash.Sum(nil)) != want.sum {
		return "has changed", nil
	}
	return "", nil
}
