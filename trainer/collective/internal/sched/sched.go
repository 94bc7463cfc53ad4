// Package sched lets ranks that wait without sleeping leave their core to others. It does
// not say how long to wait.
package sched
