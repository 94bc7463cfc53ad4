package snapshot

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
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
		wrong := fmt.Errorf("line %d is damaged", len(all)+1)
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
