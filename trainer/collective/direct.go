package collective

import (
	"context"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
)

// dataStep marks the step of the data of a large message. A request without data is sent in the
// step of a small message, so a receiver that expects a different length detects the mismatch.
const dataStep = 1 << 30

// direct sends or receives the nth message of a tag between two ranks. A large message is sent
// after the receiver has announced that it is ready (rendezvous protocol).
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
	step, large := nth&^(readyStep|dataStep), len(buf) > eager
	switch {
	case c.Kind == KindReceive && large:
		data := x.post(c.Root, step|dataStep, buf)
		request := x.post(c.Root, step, nil)
		x.sendSegment(c.Root, step|readyStep, 0, nil)
		if err := x.wait(request, nil); err != nil {
			return err
		}
		return x.wait(data, nil)
	case c.Kind == KindReceive:
		return x.wait(x.post(c.Root, step, buf), nil)
	case large:
		x.sendSegment(c.Root, step, 0, nil)
		if err := x.wait(x.post(c.Root, step|readyStep, nil), nil); err != nil {
			return err
		}
		step |= dataStep
	}
	x.send(c.Root, step, buf)
	return x.flush()
}
