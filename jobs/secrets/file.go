package secrets

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxFile bounds a file of secrets; a private key has 4 KiB.
const maxFile = 64 << 10

// load reads a file of secrets. What it looks at is the file that it opened, so
// that nobody can put another in its place between the look and the reading.
func load(path string) (map[string]string, error) {
	// Without O_NONBLOCK a FIFO would wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, refuse("name a file with one NAME=VALUE on each line", "it is not a regular file")
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 && int(owner) != os.Geteuid() {
		return nil, refuse("copy what you need into a file of your own, and `chmod 600` it",
			"it belongs to user %d, who could change it, and this is user %d", owner, os.Geteuid())
	}
	// Of a file with an access list, the bits of the group are the most that it
	// allows to anyone (acl(5)).
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return nil, refuse("`chmod 600` it; if the machine is shared, take the values in it as known to others and replace them",
			"its mode is %04o: others can get at it", perm)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, refuse("name a file with one NAME=VALUE on each line", "it is larger than %d KiB", maxFile>>10)
	}
	return parse(string(text))
}
