package secrets

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// maxFile is the maximum size of a secrets file in bytes. A private key has 4 KiB.
const maxFile = 64 << 10

const formatHint = "name a file with one NAME=VALUE on each line"

// loadFile reads a secrets file. The file must belong to this user or to root, and no other user
// may have access.
func loadFile(path string) (map[string]string, error) {
	f, err := safefile.Open(path, 0)
	if errors.Is(err, safefile.ErrNotRegular) || errors.Is(err, syscall.EISDIR) {
		return nil, hints.Errorf(formatHint, "%s", safefile.ErrNotRegular)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if owner, ok := safefile.Owner(info); !ok || owner != 0 && owner != os.Geteuid() {
		return nil, hints.Errorf("copy what you need into a file of your own, and `chmod 600` it",
			"it belongs to user %d, who could change it, and this is user %d", owner, os.Geteuid())
	}
	// If the file has an access control list, the group bits are its mask, the maximum that
	// the list grants to named users and groups (acl(5)).
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return nil, hints.Errorf("`chmod 600` it; if the machine is shared, take the values in it as known to others and replace them",
			"its mode is %04o: others can get at it", perm)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, hints.Errorf(formatHint, "it is larger than %d KiB", maxFile>>10)
	}
	return parse(string(text))
}
