package safefile

import "testing"

// TestPrivateGroup checks that a shared primary group with the ID of the user is not private.
func TestPrivateGroup(t *testing.T) {
	for _, c := range []struct {
		uid, gid    int
		user, group string
		want        bool
	}{
		{1000, 1000, "ada", "ada", true},
		{1000, 2000, "ada", "ada", true},
		{1000, 1000, "ada", "users", false},
		{1000, 1000, "", "users", false},
		{1000, 1000, "", "", true},
		{1000, 1000, "ada", "", true},
		{1000, 2000, "ada", "", false},
	} {
		if got := isPrivate(c.uid, c.gid, c.user, c.group); got != c.want {
			t.Errorf("user %d %q, group %d %q: got %v, want %v", c.uid, c.user, c.gid, c.group, got, c.want)
		}
	}
}
