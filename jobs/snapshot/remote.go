package snapshot

import (
	"net/url"
	"strings"
)

// findRemote returns the URL of a branch's remote. config is the output of `git config -z --list`.
// It uses the first URL of each remote and the last setting of the branch's remote. It falls
// back to origin, and then to the only remote.
func findRemote(config []byte, branch string) string {
	address := map[string]string{}
	upstream := ""
	for setting := range strings.SplitSeq(string(config), "\x00") {
		key, value, _ := strings.Cut(setting, "\n")
		if key == "branch."+branch+".remote" {
			upstream = value
		}
		name, ok := strings.CutPrefix(key, "remote.")
		if name, isURL := strings.CutSuffix(name, ".url"); ok && isURL && address[name] == "" {
			address[name] = value
		}
	}
	for _, name := range []string{upstream, "origin"} {
		if address[name] != "" {
			return address[name]
		}
	}
	if len(address) == 1 {
		for _, only := range address {
			return only
		}
	}
	return ""
}

// stripCredentials removes the user, password, query, and fragment from a URL. It returns an empty string
// if it cannot parse the URL reliably, or if the URL contains a later @, which may end a
// password that contains a slash. A missing URL is better than a leaked password.
//
// In the form user@host:path, bare retains the user. This form cannot contain a password, and
// without the user, the address would be a different one. For all forms, see
// gitremote-helpers(7) and git-clone(1).
func stripCredentials(address string) string {
	if strings.ContainsFunc(address, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		return "" // ext::command or not a URL
	}
	if helper, rest, ok := strings.Cut(address, "::"); ok && !strings.ContainsAny(helper, ":/@[") {
		// Without a scheme, the rest may contain a password: user::password@host.
		if rest = stripCredentials(rest); !strings.Contains(rest, "://") {
			return ""
		}
		return helper + "::" + rest
	}
	if !strings.Contains(address, "://") {
		if at := strings.LastIndex(address, "@"); at >= 0 && strings.Contains(address[:at], ":") {
			return ""
		}
		return address
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" || u.Opaque != "" || strings.Contains(u.Path+u.RawQuery+u.Fragment, "@") {
		return ""
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
	return u.String()
}
