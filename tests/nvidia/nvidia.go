// Package nvidia compares the repository with NVIDIA's own files, without a GPU:
//   - ptxas assembles the PTX of all kernels; registers and spills are compared with a table.
//   - The functions of trainer/cuda/driver/driver.tbl are compared with those of libcuda.so.1.
//   - trainer/cuda/blaslt/calls.c calls the real cuBLASLt.
//
// The files come from packages of Debian's section non-free. [Fetch] downloads the packages,
// verifies their digests, and unpacks three files into a cache directory. It installs nothing. The
// tests are skipped if the files are missing: `go run ./tests/nvidia/fetch` fetches them.
package nvidia

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// PTXASVersion is the version of ptxas in the cache.
const PTXASVersion = "12.4.131"

// Names of the files in the cache directory.
const (
	PTXAS    = "ptxas-" + PTXASVersion
	Driver   = "libcuda.so.550.163.01"
	CUBLASLt = "libcublasLt.so.12.4.5.8"
)

// mirrors are tried in this order. The second one keeps packages that Debian has replaced.
var mirrors = []string{"http://deb.debian.org/debian/pool/", "http://snapshot.debian.org/archive/debian/20251001T000000Z/pool/"}

// A debianPackage holds one file for the tests.
type debianPackage struct {
	path   string // below pool/
	sha256 string
	member string // file in the package
	name   string // file in the cache directory
	mode   os.FileMode
}

var packages = []debianPackage{
	{"non-free/n/nvidia-graphics-drivers/libcuda1_550.163.01-2_amd64.deb", "8feff97aac61d6f27ded96a3c25b9e68025a680476e6072ff7eaf10623509135",
		"./usr/lib/x86_64-linux-gnu/nvidia/current/" + Driver, Driver, 0o644},
	{"non-free/n/nvidia-cuda-toolkit/nvidia-cuda-toolkit_12.4.131~12.4.1-2_amd64.deb", "cd5fe85aee38d108b315f408a688641478f2402622a10c677478eb7a6c4e5319",
		"./usr/bin/ptxas", PTXAS, 0o755},
	{"non-free/n/nvidia-cuda-toolkit/libcublaslt12_12.4.5.8~12.4.1-2_amd64.deb", "2f67754a6dd7095de1a5c4503f20539981f31f0cd627565973c547e997fc7732",
		"./usr/lib/x86_64-linux-gnu/" + CUBLASLt, CUBLASLt, 0o644},
}

// Dir returns the cache directory: below /var/cache for root, or else below the user's own cache
// directory.
func Dir() (string, error) {
	const name = "ddpbatch-tests/nvidia"
	if os.Geteuid() == 0 {
		return filepath.Join("/var/cache", name), nil
	}
	base, err := os.UserCacheDir()
	return filepath.Join(base, name), err
}

// File returns the path of a file in the cache directory. The file and its directory must belong to
// this user, because tests execute it.
func File(name string) (string, error) {
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, name)
	for _, p := range []string{dir, file} {
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return "", fmt.Errorf("find %q: %w", p, err)
		}
		if int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
			return "", fmt.Errorf("%q can be changed by other users", p)
		}
	}
	return file, nil
}

// A Fetcher downloads files.
type Fetcher struct {
	Dir         string
	Mirrors     []string        // nil means Debian's mirrors
	packages    []debianPackage // nil means all packages
	minFree     uint64          // bytes; 0 means enough for all packages
	dialTimeout time.Duration   // 0 means 5 s
}

// Fetch downloads and unpacks the files that are not in the directory yet.
func (f Fetcher) Fetch(ctx context.Context) error {
	if f.packages == nil {
		f.packages = packages
	}
	if f.Mirrors == nil {
		f.Mirrors = mirrors
	}
	if f.minFree == 0 {
		f.minFree = 2 << 30
	}
	if f.dialTimeout == 0 {
		f.dialTimeout = 5 * time.Second
	}
	if err := os.MkdirAll(f.Dir, 0o755); err != nil {
		return err
	}
	for _, p := range f.packages {
		if _, err := os.Stat(filepath.Join(f.Dir, p.name)); err == nil {
			continue
		}
		var fs unix.Statfs_t
		if err := unix.Statfs(f.Dir, &fs); err != nil {
			return fmt.Errorf("query free space of %q: %w", f.Dir, err)
		}
		if free := fs.Bavail * uint64(fs.Bsize); free < f.minFree {
			return fmt.Errorf("%q has %d bytes of free space, want %d", f.Dir, free, f.minFree)
		}
		if err := f.fetch(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// fetch downloads and unpacks one package.
func (f Fetcher) fetch(ctx context.Context, p debianPackage) error {
	tmp, err := os.MkdirTemp(f.Dir, "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	deb := filepath.Join(tmp, "package.deb")
	var errs []error
	for _, m := range f.Mirrors {
		err := f.download(ctx, m+p.path, deb, p.sha256)
		if err == nil {
			errs = nil
			break
		}
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	file := filepath.Join(tmp, p.name)
	if err := unpack(ctx, deb, p.member, file, p.mode); err != nil {
		return err
	}
	return os.Rename(file, filepath.Join(f.Dir, p.name))
}

// download copies the content of a URL to a file and compares its digest.
func (f Fetcher) download(ctx context.Context, url, file, digest string) error {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: f.dialTimeout}).DialContext
	transport.ResponseHeaderTimeout = 2 * f.dialTimeout
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("get %q: %s", url, resp.Status)
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	h := sha256.New()
	const maxBytes = 1 << 30
	if _, err := io.Copy(io.MultiWriter(out, h), io.LimitReader(resp.Body, maxBytes)); err != nil {
		return fmt.Errorf("get %q: %w", url, err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != digest {
		return fmt.Errorf("get %q: digest %s, want %s", url, got, digest)
	}
	return out.Close()
}

// unpack writes a member of a Debian package to a file.
func unpack(ctx context.Context, deb, member, file string, mode os.FileMode) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	c.WaitDelay = time.Second // its child may keep the pipes open
	in, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("unpack %q: %w", deb, err)
	}
	defer func() {
		in.Close() // the rest of the package is not needed
		cancel()
		_ = c.Wait()
	}()
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if err != nil {
			return fmt.Errorf("find %q in %q: %w", member, deb, err)
		}
		if path.Clean(h.Name) != path.Clean(member) || h.Typeflag != tar.TypeReg {
			continue
		}
		out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		defer out.Close()
		if _, err := io.Copy(out, r); err != nil {
			return fmt.Errorf("unpack %q from %q: %w", member, deb, err)
		}
		return out.Close()
	}
}
