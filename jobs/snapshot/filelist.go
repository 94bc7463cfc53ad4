package snapshot

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Modes as git writes them; there is no other permission that a copy keeps.
const (
	modeFile = "100644"
	modeExec = "100755"
	modeLink = "120000"
)

// maxLine bounds a line of the list: a path has 4096 bytes, of up to four
// characters each.
const maxLine = 17 << 10

// listed is a line of the list of a snapshot.
type listed struct {
	mode string
	sum  string // SHA-256 of the content, or of where a link leads, in hex
	size int64  // bytes, 0 of a link
	path string
}

// formatList writes the list of the files: mode, digest, bytes and quoted path.
func formatList(entries []*entry) []byte {
	var b bytes.Buffer
	for _, e := range entries {
		line := listed{modeLink, e.sum, 0, e.path}
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

// parseList reads what formatList wrote.
func parseList(text string) ([]listed, error) {
	var all []listed
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
		all = append(all, listed{fields[0], fields[1], size, path})
		text = rest
	}
	return all, nil
}
