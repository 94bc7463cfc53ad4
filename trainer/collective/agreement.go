package collective

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/segment"
)

// agreement is what ranks of a node tell each other to come to common memory.
type agreement struct {
	*messages
	sequence uint64
}

// offer is a file that a rank has made, or why it has none.
type offer struct {
	Name  string `json:"name,omitempty"`
	Bytes int    `json:"bytes,omitempty"`
	Why   string `json:"why,omitempty"`
}

const offerRoom = 1024

// offers gives every rank what all have to offer.
func (a *agreement) offers(ctx context.Context, mine offer) ([]offer, error) {
	mine.Why = mine.Why[:min(len(mine.Why), offerRoom/4)]
	b, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	n := len(a.members)
	all := make([]byte, n*offerRoom)
	number := a.sequence
	a.sequence++
	padded := fmt.Appendf(nil, "%-*s", offerRoom, b)
	c := AllGather(all, padded)
	if err := a.run(ctx, number, &c); err != nil {
		return nil, err
	}
	out := make([]offer, n)
	for r := range n {
		if err := json.Unmarshal(all[r*offerRoom:][:offerRoom], &out[r]); err != nil {
			return nil, fmt.Errorf("what rank %d offers: %w", a.members[r], err)
		}
	}
	return out, nil
}

// share makes the common memory of the processes of one node; why says what keeps them
// from it. The first rank makes a file, all map it, and its name is removed at once.
func share(ctx context.Context, m *messages) (f *file, why string, err error) {
	f = &file{rank: m.rank, agree: &agreement{messages: m}, areas: make([][]*segment.Segment, len(m.members)), spins: patience(len(m.members))}
	bytes := len(m.members) * rankRoom
	var mine offer
	var failure error
	if m.rank == 0 {
		if f.memory, failure = segment.Create(bytes); failure == nil {
			mine.Name = f.memory.Name
			created := f.memory
			defer func() { _ = created.Unlink() }() // a name that stays is swept later
		}
		mine.Why = text(failure)
	}
	give := func() {
		if f.memory != nil {
			_ = f.memory.Unmap()
		}
	}
	offers, err := f.agree.offers(ctx, mine)
	if err != nil {
		give()
		return nil, "", err
	}
	if m.rank != 0 && offers[0].Why == "" {
		f.memory, failure = segment.Open(offers[0].Name, bytes)
	}
	verdicts, err := f.agree.offers(ctx, offer{Why: text(failure)})
	if err != nil {
		give()
		return nil, "", err
	}
	for r, v := range verdicts {
		if v.Why != "" {
			give()
			return nil, fmt.Sprintf("rank %d: %s", m.members[r], v.Why), nil
		}
	}
	return f, "", nil
}
