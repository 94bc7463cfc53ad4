//go:build cuda

package driver_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

func alloc(t *testing.T, p *driver.Pool, n int64) driver.Ptr {
	t.Helper()
	at, err := p.Alloc(n)
	must(t, err)
	if at%256 != 0 {
		t.Errorf("%v is not aligned", at)
	}
	return at
}

// TestPool checks that allocations never overlap and that freed memory is reused.
func TestPool(t *testing.T) {
	bound(t)
	p := driver.NewPool()
	defer func() { must(t, p.Close()) }()
	type block struct {
		at driver.Ptr
		n  int64
	}
	var used []block
	for i := range 200 {
		n := int64(i*i*7%90_000) + int64(i%2)*int64(i)*20_000
		b := block{alloc(t, p, n), n}
		for _, u := range used {
			if b.at < u.at+driver.Ptr(u.n) && u.at < b.at+driver.Ptr(b.n) {
				t.Fatalf("%v+%d overlaps %v+%d", b.at, b.n, u.at, u.n)
			}
		}
		used = append(used, b)
		if i%3 == 0 {
			p.Free(used[0].at)
			used = used[1:]
		}
	}
	for _, u := range used {
		p.Free(u.at)
	}
	before := p.Stats()
	if before.Used != 0 || before.Peak == 0 || before.Reserved < before.Peak {
		t.Errorf("got %+v", before)
	}
	at := alloc(t, p, 3<<20)
	p.Free(at)
	if again := alloc(t, p, 3<<20-100); again != at {
		t.Errorf("got %v, and %v was free", again, at)
	}
}

// TestPoolApart checks that each allocation of a pool with SeparateAllocations is a separate driver
// allocation.
func TestPoolApart(t *testing.T) {
	bound(t)
	p := driver.NewPool()
	p.SeparateAllocations = true
	defer func() { must(t, p.Close()) }()
	a := alloc(t, p, 100)
	alloc(t, p, 100)
	alloc(t, p, 0)
	p.Free(a)
	if again := alloc(t, p, 100); again != a {
		t.Errorf("got %v, and %v was free", again, a)
	}
	if got := p.Stats(); got.Used != 201 || got.Reserved != 201 {
		t.Errorf("got %+v", got)
	}
}

// TestPoolOutOfMemory checks that a pool returns unused memory to the driver before it reports an
// out-of-memory error.
func TestPoolOutOfMemory(t *testing.T) {
	g := bound(t)
	p := driver.NewPool()
	a := alloc(t, p, 600<<20)
	_, err := p.Alloc(600 << 20)
	if !errors.Is(err, driver.OutOfMemory) || !strings.Contains(err.Error(), "629145600 bytes, where 444596224 of 1073741824 are free; of this process's 629145600 bytes, 629145600 are in use") {
		t.Errorf("got %v", err)
	}
	p.Free(a)
	alloc(t, p, 700<<20)
	must(t, p.Close())
	if free, total, err := g.Free(); free != total || err != nil {
		t.Errorf("%d of %d are free, %v", free, total, err)
	}
}

// TestPoolRejectsForeignMemory checks that a pool panics if it has not allocated the memory to
// free.
func TestPoolRejectsForeignMemory(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	driver.NewPool().Free(512)
}
