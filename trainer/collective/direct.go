package collective

import (
	"context"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
)

// direct sends or receives the nth message of a tag between two ranks. A large one is
// sent when the receiver has said that it is ready.
func (g *group) direct(ctx context.Context, c *Call, nth uint32) error {
	ctx, cancel := within(ctx, g.timeout)
	defer cancel()
	buf := c.Send
	if c.Kind == KindReceive {
		buf = c.Recv
	}
	m := &messages{world: g.world, id: g.id, members: g.members, rank: g.rank}
	x := &exchange{messages: m, ctx: ctx, call: c, n: len(g.members), head: mesh.Head{
		Key:       mesh.Key{Group: g.id, Sequence: uint64(c.Tag), Direct: true},
		Signature: mesh.Signature{Kind: uint8(KindSend), Type: uint8(c.Type), Bytes: uint64(len(buf))},
	}}
	step := nth &^ announcement
	if c.Kind == KindReceive {
		in := x.post(c.Root, step, buf)
		if len(buf) > eager {
			x.sendSegment(c.Root, step|announcement, 0, nil)
		}
		return x.wait(in, nil)
	}
	if len(buf) > eager {
		if err := x.wait(x.post(c.Root, step|announcement, nil), nil); err != nil {
			return err
		}
	}
	x.send(c.Root, step, buf)
	return x.flush()
}
