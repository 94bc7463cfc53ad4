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
