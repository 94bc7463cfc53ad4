//go:build linux

// Attacker does what an unprivileged user can do to the programs of another user on a node.
//
// The tests with two users run it. Each command prints one line when the attack is in
// place, keeps it there until standard input ends, and then prints one line about what it
// saw. It does not decide whether an attack did harm, and it needs no privileges, except for
// capture, which stands for a listener on the management network.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
)

const usage = `usage:
  attacker lease FILE...         create files and hold leases on them
  attacker fill UID COUNT        hold COUNT silent connections to each listener of a user
  attacker flood ADDRESS COUNT   keep COUNT silent connections to an address open
  attacker listen ADDRESS        listen on an address and count the connections
  attacker ports FIRST LAST...   bind all ports of 127.0.0.1 in ranges
  attacker capture LINK FILE     write the payload of all TCP connections to a file
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "attacker:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("too few arguments\n%s", usage)
	}
	command, args := args[0], args[1:]
	switch {
	case command == "lease":
		return lease(args)
	case command == "fill" && len(args) == 2:
		uid, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		count, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		return fill(uid, count)
	case command == "flood" && len(args) == 2:
		count, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		return flood(args[0], count)
	case command == "listen" && len(args) == 1:
		return listen(args[0])
	case command == "ports" && len(args)%2 == 0:
		return ports(args)
	case command == "capture" && len(args) == 2:
		return capture(args[0], args[1])
	}
	return fmt.Errorf("unknown command %q\n%s", command, usage)
}

// waitForEnd returns when standard input ends.
func waitForEnd() error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}
