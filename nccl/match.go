package nccl

import "strings"

// maxItems is how many items of a list NCCL reads (MAX_IFS).
const maxItems = 16

// allows says whether a value of NCCL_SOCKET_IFNAME lets NCCL use an interface.
//
// The grammar is that of ncclOsFindInterfaces and parseStringList in NCCL's
// source: "^" first for all but the list, then "=" for exact names, and then
// names or prefixes between commas; what follows a colon is a port and does not
// count. An empty list is every interface.
func allows(value, name string) bool {
	value, not := strings.CutPrefix(value, "^")
	value, exact := strings.CutPrefix(value, "=")
	items, found := 0, false
	for item := range strings.SplitSeq(value, ",") {
		item, _, _ = strings.Cut(item, ":")
		if item == "" || items == maxItems {
			continue
		}
		items++
		found = found || item == name || !exact && strings.HasPrefix(name, item)
	}
	return (found || items == 0) != not
}
