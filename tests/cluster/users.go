//go:build linux

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// A User is an unprivileged account that exists only on the machines of a cluster. The
// machine that runs the tests does not know it, so several clusters may have the same users.
type User struct {
	Name string
	ID   int    // user ID, and group ID of the user's own group
	Home string // must exist; the cluster does not create it

	// Group is a second group that several users can share.
	Group   string
	GroupID int
}

// checkUsers returns an error if a user cannot be written to a password file.
func checkUsers(users []User) error {
	for _, u := range users {
		for _, field := range []string{u.Name, u.Home, u.Group} {
			if field == "" || strings.ContainsAny(field, ":\n,") {
				return fmt.Errorf("user %q: a name, a home, and a group without %q are required", u.Name, ":,\n")
			}
		}
		if u.ID <= 0 || u.GroupID <= 0 {
			return fmt.Errorf("user %q: user ID %d and group ID %d must be positive", u.Name, u.ID, u.GroupID)
		}
	}
	return nil
}

// fillUsers writes the password file and the group file of the cluster's machines. They
// contain the accounts of this machine, because daemons and system users need them.
func (l layout) fillUsers(users []User) error {
	if len(users) == 0 {
		return nil
	}
	var accounts, groups strings.Builder
	members := make(map[string][]string)
	var shared []User // the first user of each shared group
	for _, u := range users {
		fmt.Fprintf(&accounts, "%s:x:%d:%[2]d::%s:/bin/sh\n", u.Name, u.ID, u.Home)
		fmt.Fprintf(&groups, "%s:x:%d:\n", u.Name, u.ID)
		if members[u.Group] == nil {
			shared = append(shared, u)
		}
		members[u.Group] = append(members[u.Group], u.Name)
	}
	for _, u := range shared {
		fmt.Fprintf(&groups, "%s:x:%d:%s\n", u.Group, u.GroupID, strings.Join(members[u.Group], ","))
	}
	for name, more := range map[string]string{"passwd": accounts.String(), "group": groups.String()} {
		text, err := os.ReadFile("/etc/" + name)
		if err != nil {
			return err
		}
		if len(text) > 0 && text[len(text)-1] != '\n' {
			text = append(text, '\n')
		}
		if err := os.WriteFile(l.path(name), append(text, more...), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// OnNodeAs returns a command that one of Options.Users runs on a node in the directory dir, as
// after a login: without this process's environment, but with [Cluster.Env]. Otherwise it behaves
// like [Cluster.OnNode].
func (c *Cluster) OnNodeAs(ctx context.Context, node string, u User, dir string, argv ...string) *exec.Cmd {
	id := strconv.Itoa(u.ID)
	// A change of the user ID clears the signal that OnNode sets.
	as := []string{"setpriv", "--reuid=" + id, "--regid=" + id, "--groups=" + strconv.Itoa(u.GroupID),
		"--pdeathsig", "KILL", "--", "env", "-C", dir, "--"}
	cmd := c.OnNode(ctx, node, append(as, argv...)...)
	cmd.Env = append([]string{
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"LANG=C.UTF-8",
		"HOME=" + u.Home,
		"USER=" + u.Name,
		"LOGNAME=" + u.Name,
	}, c.Env()...)
	return cmd
}
