package collective

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// splits creates groups of all ranks, uses them, and closes them.
func splits(t *testing.T, comms []Communicator) {
	t.Helper()
	var wg sync.WaitGroup
	for _, c := range comms {
		wg.Go(func() {
			for range 5 {
				g, err := c.Split(t.Context(), 0, 0)
				if err == nil {
					err = g.Do(t.Context(), AllReduce(make([]float32, 10), Sum))
				}
				if err == nil {
					err = g.Close()
				}
				if err == nil {
					err = g.Close() // a second Close does nothing
				}
				if err != nil {
					t.Errorf("rank %d: %v", c.Rank(), err)
				}
			}
		})
	}
	wg.Wait()
}

// TestClosedGroupsLeaveNoBoards checks that the board of a group is released when all ranks have
// closed the group.
func TestClosedGroupsLeaveNoBoards(t *testing.T) {
	comms := Local(3, time.Minute)
	splits(t, comms)
	boards := comms[0].(*group).heaps
	if n := len(boards.all); n != 1 {
		t.Errorf("%d boards, want that of all ranks", n)
	}
	for _, c := range comms {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := len(boards.all); n != 0 {
		t.Errorf("%d boards are left", n)
	}
}

// present is a mesh that records which groups its rank has entered.
type present struct {
	mesh.Mesh
	mu     sync.Mutex
	groups map[uint64]bool
}

func (p *present) Enter(group, sequence uint64, s mesh.Signature) error {
	p.mu.Lock()
	p.groups[group] = true
	p.mu.Unlock()
	return p.Mesh.Enter(group, sequence, s)
}

func (p *present) Leave(group uint64) {
	p.mu.Lock()
	delete(p.groups, group)
	p.mu.Unlock()
	p.Mesh.Leave(group)
}

// TestClosedGroupsAreLeft checks that a closed group leaves the mesh, including its groups for
// internal use.
func TestClosedGroupsAreLeft(t *testing.T) {
	for name, nodes := range map[string][]int{"messages": {0, 1}, "one node": {0, 0}, "nodes": {0, 0, 1}} {
		t.Run(name, func(t *testing.T) {
			o := Options{Nodes: nodes, Memory: true, Secret: wire.Secret{1}, ConnectTimeout: time.Minute, Timeout: time.Minute}
			var listeners []net.Listener
			for range nodes {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				listeners, o.Addrs = append(listeners, l), append(o.Addrs, l.Addr().String())
			}
			comms := make([]Communicator, len(nodes))
			var wg sync.WaitGroup
			for r := range nodes {
				o := o
				o.Rank = r
				wg.Go(func() {
					c, err := Connect(t.Context(), listeners[r], o)
					if err != nil {
						t.Errorf("rank %d: %v", r, err)
						return
					}
					comms[r] = c
				})
			}
			if wg.Wait(); t.Failed() {
				t.FailNow()
			}
			meshes := make([]*present, len(nodes))
			for r, c := range comms {
				w := c.(*group).world
				meshes[r] = &present{Mesh: w.mesh, groups: map[uint64]bool{}}
				w.mesh = meshes[r]
				defer c.Close()
			}
			splits(t, comms)
			for r, m := range meshes {
				delete(m.groups, 0) // the group of all ranks
				if len(m.groups) > 0 {
					t.Errorf("rank %d is still in groups %v", r, m.groups)
				}
			}
		})
	}
}
