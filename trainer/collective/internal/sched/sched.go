// Package sched lets ranks that wait without sleeping leave their core to others, or leave
// it for another. It does not say when.
package sched

// Nowhere is a core that is not known.
const Nowhere = -1
