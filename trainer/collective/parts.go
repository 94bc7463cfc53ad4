package collective

// gather sends every rank's part directly to root.
func (x *exchange) gather() error {
	c := x.call
	if x.rank != c.Root {
		if err := x.awaitReady(c.Root, len(c.Send)); err != nil {
			return err
		}
		x.send(c.Root, 0, c.Send)
		return nil
	}
	m := len(c.Send)
	copy(c.Recv[x.rank*m:], c.Send)
	return x.fromAll(func(i int) []byte { return c.Recv[i*m:][:m] }, func() error { return nil })
}

// scatter sends every rank's part from root.
func (x *exchange) scatter() error {
	c, m := x.call, len(x.call.Recv)
	if x.rank != c.Root {
		in := x.post(c.Root, 0, c.Recv)
		x.announce(c.Root, m)
		return x.wait(in, nil)
	}
	copy(c.Recv, c.Send[x.rank*m:])
	return x.toAll(func(i int) []byte { return c.Send[i*m:][:m] })
}

// allToAll sends a part from every rank to every other, beginning with the next rank.
func (x *exchange) allToAll() error {
	c, m := x.call, len(x.call.Recv)/x.n
	copy(c.Recv[x.rank*m:][:m], c.Send[x.rank*m:])
	return x.fromAll(func(i int) []byte { return c.Recv[i*m:][:m] }, func() error {
		return x.toAll(func(i int) []byte { return c.Send[i*m:][:m] })
	})
}

// fromAll receives a part from every other rank, and runs meanwhile while it waits.
func (x *exchange) fromAll(part func(int) []byte, meanwhile func() error) error {
	var in []incoming
	for away := 1; away < x.n; away++ {
		from := (x.rank + x.n - away) % x.n
		in = append(in, x.post(from, 0, part(from)))
		x.announce(from, len(part(from)))
	}
	if err := meanwhile(); err != nil {
		return err
	}
	for _, w := range in {
		if err := x.wait(w, nil); err != nil {
			return err
		}
	}
	return nil
}

// toAll sends a part to every other rank.
func (x *exchange) toAll(part func(int) []byte) error {
	for away := 1; away < x.n; away++ {
		to := (x.rank + away) % x.n
		if err := x.awaitReady(to, len(part(to))); err != nil {
			return err
		}
		x.send(to, 0, part(to))
	}
	return nil
}
