package snapshot

import (
	"net/url"
	"strings"
)

// remote finds a branch's remote in the settings as `git config -z --list`
// prints them, the later ones before the earlier, and returns its first address.
func remote(config []byte, branch string) string {
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

// bare takes user, password, query and fragment off an address. One that it
// cannot take apart for certain is left out, as is one with an @ further on, which
// may end a password with a slash in it: better no address than a password.
//
// Of the form user@host:path (gitremote-helpers(7) and git-clone(1) have all the
// forms), the user stays: there is no room for a password, and without it the
// address is another.
func bare(address string) string {
	if strings.ContainsFunc(address, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		return "" // ext::command, and what is no address at all
	}
	if helper, rest, ok := strings.Cut(address, "::"); ok && !strings.ContainsAny(helper, ":/@[") {
		// Without a scheme, what follows may be a password: user::password@host.
		if rest = bare(rest); !strings.Contains(rest, "://") {
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
