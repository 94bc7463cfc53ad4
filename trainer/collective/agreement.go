package collective

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/segment"
)

// agreement exchanges messages between the ranks of a node to set up shared memory.
type agreement struct {
	*messages
	sequence uint64
}

// offer is a file that a rank has created, or the reason why it could not.
type offer struct {
	Name  string `json:"name,omitempty"`
	Bytes int    `json:"bytes,omitempty"`
	Why   string `json:"why,omitempty"`
}

// offerBytes is the encoded size of an offer in bytes. maxWhyBytes limits Why, because JSON encodes
// one byte in up to six.
const (
	offerBytes  = 2 << 10
	maxWhyBytes = 256
)

// encode returns the offer as JSON, padded to offerBytes bytes.
func (o offer) encode() ([]byte, error) {
	o.Why = o.Why[:min(len(o.Why), maxWhyBytes)]
	b, err := json.Marshal(o)
	if err == nil && len(b) > offerBytes {
		err = fmt.Errorf("an offer of %d bytes exceeds %d bytes", len(b), offerBytes)
	}
	if err != nil {
		return nil, err
	}
	return append(b, bytes.Repeat([]byte{' '}, offerBytes-len(b))...), nil
}

// offers returns the offers of all ranks to every rank.
func (a *agreement) offers(ctx context.Context, own offer) ([]offer, error) {
	b, err := own.encode()
	if err != nil {
		return nil, err
	}
	n := len(a.members)
	all := make([]byte, n*offerBytes)
	number := a.sequence
	a.sequence++
	c := AllGather(all, b)
	if err := a.run(ctx, number, &c); err != nil {
		return nil, err
	}
	out := make([]offer, n)
	for r := range n {
		if err := json.Unmarshal(all[r*offerBytes:][:offerBytes], &out[r]); err != nil {
			return nil, fmt.Errorf("decode the offer of rank %d: %w", a.members[r], err)
		}
	}
	return out, nil
}

// shareMemory sets up the shared memory of the processes of one node, or returns in why the reason
// why that is not possible. The first rank creates a file, all ranks map it, and its name is
// removed immediately.
func shareMemory(ctx context.Context, m *messages) (f *file, why string, err error) {
	if n := len(m.members); n > maxRanksPerNode {
		return nil, fmt.Sprintf("%d ranks on one node exceed the limit of %d", n, maxRanksPerNode), nil
	}
	f = &file{rank: m.rank, agree: &agreement{messages: m}, areas: make([][]*segment.Segment, len(m.members)), spins: spinLimit(len(m.members))}
	size := len(m.members) * rankBytes
	var own offer
	var failure error
	if m.rank == 0 {
		if f.memory, failure = segment.Create(size); failure == nil {
			own.Name = f.memory.Name
			created := f.memory
			defer func() { _ = created.Unlink() }() // a name that remains is removed by a later sweep
		}
		own.Why = errorText(failure)
	}
	cleanUp := func() {
		f.agree.leave()
		if f.memory != nil {
			_ = f.memory.Unmap()
		}
	}
	offers, err := f.agree.offers(ctx, own)
	if err != nil {
		cleanUp()
		return nil, "", err
	}
	if m.rank != 0 && offers[0].Why == "" {
		f.memory, failure = segment.Open(offers[0].Name, size)
	}
	results, err := f.agree.offers(ctx, offer{Why: errorText(failure)})
	if err != nil {
		cleanUp()
		return nil, "", err
	}
	for r, v := range results {
		if v.Why != "" {
			cleanUp()
			return nil, fmt.Sprintf("rank %d: %s", m.members[r], v.Why), nil
		}
	}
	return f, "", nil
}
