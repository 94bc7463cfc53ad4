// Package watch says when something happens to a network interface.
//
// [Watch] subscribes to the kernel's own announcements of link and address
// changes (rtnetlink(7)) and turns those of one interface into events with the
// time and a few words: the link went down, the carrier was lost, an address was
// removed, the MTU changed, the interface is gone or is back. It promises that
// changes are told in the order in which they happened, and that the state at
// the end is told even where the kernel had to drop announcements: then it reads
// the state anew and tells what differs.
//
// Link-local addresses are not told of: the kernel makes and removes them by
// itself, and jobs do not use them. Nor is the end of the kernel's check that no
// other machine has an address which the interface had before.
//
// The package never polls, and it judges nothing: whether a change matters to a
// job is for the caller to say. It does not see what happens beyond the
// interface, such as at a switch, unless that takes the carrier away. It needs
// Linux.
package watch
