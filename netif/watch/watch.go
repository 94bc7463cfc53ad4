// Package watch reports changes of a network interface.
//
// [Watch] subscribes to the kernel's link and address notifications (rtnetlink(7)). It
// converts the notifications of one interface to events with a time and a short description:
// the link went down, the carrier was lost, an address was removed, the MTU changed, or the
// interface disappeared or came back. Watch reports changes in the order in which they
// happened. If the kernel drops notifications, Watch reads the state again and reports the
// differences, so the final state is always reported.
//
// Watch does not report link-local addresses, because the kernel adds and removes them
// automatically and jobs do not use them. It also does not report the end of duplicate address
// detection for an address that the interface already had.
//
// The package never polls and does not judge changes; the caller decides whether a change
// matters to a job. It does not detect changes beyond the interface, such as at a switch,
// unless the carrier is lost. It requires Linux.
package watch

import (
	"fmt"
	"time"
)

// An Event is one change of an interface.
type Event struct {
	Time      time.Time `json:"time"`      // when this process received the notification
	Interface string    `json:"interface"` // name at that time
	What      string    `json:"what"`      // such as "carrier lost" or "mtu changed from 9000 to 1500"
}

// String returns the event in one line, with the time of day in milliseconds.
func (e Event) String() string {
	return fmt.Sprintf("%s %s: %s", e.Time.Format("15:04:05.000"), e.Interface, e.What)
}
