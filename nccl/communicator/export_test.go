package communicator

// Started returns the number of operations that have started.
func (c *Comm) Started() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next
}
