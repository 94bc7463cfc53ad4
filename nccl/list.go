package nccl

import (
	"strconv"
	"strings"
)

// How many items of a list NCCL reads: of interfaces (MAX_IFS), and of RDMA
// ports (MAX_IB_DEVS).
const (
	maxInterfaces = 16
	maxPorts      = 32
)

// list is a value of NCCL_SOCKET_IFNAME or NCCL_IB_HCA.
//
// The grammar is that of parseStringList and matchIfList in NCCL's source: "^"
// first for all but the list, then "=" for exact names, and then names or
// prefixes between commas, each with a port after a colon or for any port. What
// follows a second colon (rail and plane, of NCCL 2.30) is passed over. An empty
// list is everything.
type list struct {
	not, exact bool
	items      []item
}

type item struct {
	name string
	port int // anyPort, or the number
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

// atoi is that of C: the digits at the beginning count, and no digits are 0.
func atoi(text string) int {
	text = strings.TrimLeft(text, " \t\n\v\f\r")
	end := 0
	if end < len(text) && (text[end] == '-' || text[end] == '+') {
		end++
	}
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	n, _ := strconv.Atoi(text[:end]) // 0 where there is none
	return n
}

// allows says whether the list lets NCCL use an interface or adapter with a
// port; anyPort for an interface.
func (l list) allows(name string, port int) bool {
	found := len(l.items) == 0
	for _, i := range l.items {
		named := i.name == name || !l.exact && strings.HasPrefix(name, i.name)
		found = found || named && (port == anyPort || i.port == anyPort || i.port == port)
	}
	return found != l.not
}
