package collective

import (
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
)

// TestPathOfNodes checks the path of ranks on several nodes.
func TestPathOfNodes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		byNode [][]int // the rank is the first one
		call   Call
		want   Path
	}{
		{name: "large broadcast", byNode: [][]int{{0, 1}, {2, 3}}, call: Broadcast(make([]byte, 4*fewStepsBelow), 0),
			want: Path{Transport: "memory and tcp", Algorithm: "in place, then chain"}},
		{name: "broadcast of small pieces", byNode: [][]int{{0, 1}, {2, 3}}, call: Broadcast(make([]byte, 2*fewStepsBelow), 0),
			want: Path{Transport: "memory and tcp", Algorithm: "in place, then tree"}},
		{name: "one rank on this node", byNode: [][]int{{0}, {1, 2}}, call: AllReduce(make([]float32, 1000), Sum),
			want: Path{Transport: "tcp", Algorithm: "recursive doubling"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			own, members := tt.byNode[0], 0
			for _, on := range tt.byNode {
				members += len(on)
			}
			e := &nodes{byNode: tt.byNode, local: &shared{members: own, board: newHeap(len(own), func() {})},
				flat: &messages{world: &world{messages: "tcp"}, members: make([]int, members)}}
			e.assignWorkers()
			if got := e.path(&tt.call); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestSetupFailureReleasesSharedMemory checks that the memory of a node is released if the ranks of all
// nodes cannot compare their results.
func TestSetupFailureReleasesSharedMemory(t *testing.T) {
	w := &world{mesh: mesh.Local(2, nil)[0], timeout: time.Minute, waiting: new(waitedRank), detector: newDivergenceDetector(), ended: make(chan struct{})}
	w.mesh.Close()
	released := false
	e := &nodes{world: w, flat: &messages{members: []int{0, 1}}, local: &shared{members: []int{0}, board: newHeap(1, func() { released = true })}}
	if _, err := e.checkSharedMemory(t.Context(), ""); err == nil {
		t.Error("a closed mesh carried messages")
	}
	if !released {
		t.Error("the memory is still in use")
	}
}
