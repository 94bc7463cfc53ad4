package communicator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/nccl/libnccl"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// A peerInfo describes a rank to the other ranks before NCCL starts.
type peerInfo struct {
	Rank    int             `json:"rank"` // rank in the attempt
	Host    string          `json:"host"`
	GPU     string          `json:"gpu"`
	Version libnccl.Version `json:"version"`
	File    string          `json:"file"`
}

// exchangePeerInfo exchanges the peerInfo of all ranks and detects conditions that would make
// NCCL hang. It also creates the host communicators.
func (c *Comm) exchangePeerInfo(ctx context.Context) error {
	o := &c.options
	info := peerInfo{o.Control.Rank(), o.Host, o.GPU.ID(), o.Library.Version, o.Library.File}
	all, err := collective.AllGatherJSON(ctx, o.Control, info)
	if err != nil {
		return fmt.Errorf("exchange GPUs of the ranks: %w", err)
	}
	c.peers = make([]collective.Peer, len(all))
	owners := map[string]int{}
	for r, i := range all {
		c.peers[r] = collective.Peer{Rank: i.Rank, Addr: i.Host}
		if i.Version != all[0].Version {
			return hints.Errorf("use the same module or Python environment on all nodes, and check LD_LIBRARY_PATH, which takes precedence",
				"rank %d (%s) has NCCL %v from %s, but rank %d (%s) has NCCL %v from %s: versions must be equal",
				all[0].Rank, all[0].Host, all[0].Version, all[0].File, i.Rank, i.Host, i.Version, i.File)
		}
		if other, taken := owners[i.Host+" "+i.GPU]; taken {
			return hints.Errorf("request one GPU per rank, and check CUDA_VISIBLE_DEVICES of the ranks",
				"ranks %d and %d use the same GPU %s of %s: NCCL requires one GPU per rank", all[other].Rank, i.Rank, i.GPU, i.Host)
		}
		owners[i.Host+" "+i.GPU] = r
	}
	for range 2 { // for comparisons and diagnoses, and for messages between neighbors
		h, err := o.Control.Split(ctx, 0, o.Control.Rank())
		if err != nil {
			return fmt.Errorf("create host communicator: %w", err)
		}
		c.hosts = append(c.hosts, h)
	}
	return nil
}

// uniqueID returns rank 0's unique ID, or the error that prevented its creation.
func (c *Comm) uniqueID(ctx context.Context) (libnccl.UniqueID, error) {
	var id libnccl.UniqueID
	var message [1 + len(id.Internal)]byte // 0 and the error, or 1 and the ID
	var own error
	if c.Rank() == 0 {
		if id, own = c.options.Library.NewUniqueID(); own == nil {
			message[0] = 1
			copy(message[1:], id.Internal[:])
		} else {
			copy(message[1:], own.Error())
		}
	}
	if err := c.options.Control.Do(ctx, collective.Broadcast(message[:], 0)); err != nil {
		return id, fmt.Errorf("broadcast NCCL's unique ID: %w", err)
	}
	if own != nil {
		return id, own
	}
	if message[0] != 1 {
		return id, fmt.Errorf("rank %d (%s) cannot create a unique ID: %s", c.peers[0].Rank, c.peers[0].Addr, strings.TrimRight(string(message[1:]), "\x00"))
	}
	copy(id.Internal[:], message[1:])
	return id, nil
}

// runOnAllRanks calls f and returns when f has succeeded on all ranks, or at the first failure. It
// notifies the other ranks of a failure. A failure of another rank cancels f's context.
func (c *Comm) runOnAllRanks(ctx context.Context, f func(context.Context) error) error {
	if len(c.hosts) == 0 {
		return f(ctx) // exchangePeerInfo failed on all ranks
	}
	host, n := c.hosts[0], c.Size()
	if n == 1 {
		return f(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A rank that fails sends a message. NCCL's own deadline detects a rank that is late.
	request := host.Start(collective.WithTimeout(ctx, 2*c.options.ConnectTimeout), collective.Receive(make([]byte, 1), (c.Rank()+1)%n, 0))
	go func() {
		if err := request.Wait(); err != nil {
			cancel(err)
		}
	}()
	if err := f(ctx); err != nil {
		why := err
		if of := (*collective.Error)(nil); !errors.As(err, &of) {
			why = &collective.Error{Op: "connect", Peer: collective.Peer{Rank: c.Rank(), Addr: c.options.Host}, Err: err}
		}
		notifyFailure(host, why)
		return err
	}
	return errors.Join(host.Do(ctx, collective.Send(make([]byte, 1), (c.Rank()+n-1)%n, 0)), request.Wait(), host.Do(ctx, collective.Barrier()))
}
