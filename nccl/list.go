package nccl

import (
	"strconv"
	"strings"
)

// Maximum number of list items that NCCL reads: interfaces (MAX_IFS) and RDMA ports
// (MAX_IB_DEVS).
const (
	maxInterfaces = 16
	maxPorts      = 32
)

// A list is a value of NCCL_SOCKET_IFNAME or NCCL_IB_HCA.
//
// The syntax follows parseStringList and matchIfList in NCCL's source: an optional "^" to
// invert the list, an optional "=" for exact names, and then comma-separated names or
// prefixes. Each may have a port after a colon. Text after a second colon (rail and plane, in
// NCCL 2.30) is ignored. An empty list matches everything.
type list struct {
	not, exact bool
	items      []item
}

type item struct {
	name string
	port int // port number or anyPort
}

const anyPort = -1

func parseList(value string, most int) list {
	var l list
	value, l.not = strings.CutPrefix(value, "^")
	value, l.exact = strings.CutPrefix(value, "=")
	for text := range strings.SplitSeq(value, ",") {
		name, port, numbered := strings.Cut(text, ":")
		if name == "" {
			continue
		}
		if len(l.items) == most {
			break
		}
		i := item{name, anyPort}
		if numbered {
			i.port = atoi(port)
		}
		l.items = append(l.items, i)
	}
	return l
}

// atoi follows C: it parses the leading digits, and returns 0 without digits.
func atoi(text string) int {
	text = strings.TrimLeft(text, " \t\n\v\f\r")
	end := 0
	if end < len(text) && (text[end] == '-' || text[end] == '+') {
		end++
	}
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	n, _ := strconv.Atoi(text[:end]) // 0 without digits
	return n
}

// allows reports whether the list allows NCCL to use a port of an adapter, or an interface
// with anyPort.
func (l list) allows(name string, port int) bool {
	found := len(l.items) == 0
	for _, i := range l.items {
		named := i.name == name || !l.exact && strings.HasPrefix(name, i.name)
		found = found || named && (port == anyPort || i.port == anyPort || i.port == port)
	}
	return found != l.not
}
