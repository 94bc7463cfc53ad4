package netif

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

// IDs of the named routing tables (rt_tables of iproute2).
const (
	tableDefault = 253
	tableMain    = 254
	tableLocal   = 255
)

var tableNames = map[string]tableID{"default": tableDefault, "main": tableMain, "local": tableLocal}

// mainIsZero maps the main table to 0, its only ID in this package.
func mainIsZero(table int) int {
	if table == tableMain {
		return 0
	}
	return table
}

// A tableID is a routing table. In JSON it is a number or an iproute2 name.
type tableID int

// UnmarshalJSON reads 100, "100", or "main".
func (t *tableID) UnmarshalJSON(data []byte) error {
	var word string
	if json.Unmarshal(data, &word) != nil {
		word = string(data)
	}
	if id, known := tableNames[word]; known {
		*t = id
		return nil
	}
	id, err := strconv.ParseUint(word, 10, 32)
	if err != nil {
		return fmt.Errorf("routing table %q is not a number, nor main, local or default", word)
	}
	*t = tableID(id)
	return nil
}

// UnmarshalJSON reads a rule. In addition to prefixes, From and To accept a bare address and
// "all", as in the output of "ip rule".
func (r *Rule) UnmarshalJSON(data []byte) error {
	type plain Rule // without this method
	text := struct {
		*plain
		From  string  `json:"from"`
		To    string  `json:"to"`
		Table tableID `json:"table"`
	}{plain: (*plain)(r)}
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	var err error
	if r.From, err = ruleAddrs(text.From); err != nil {
		return fmt.Errorf("rule %d: from %q: %w", r.Priority, text.From, err)
	}
	if r.To, err = ruleAddrs(text.To); err != nil {
		return fmt.Errorf("rule %d: to %q: %w", r.Priority, text.To, err)
	}
	r.Table = int(text.Table)
	return nil
}

func ruleAddrs(text string) (netip.Prefix, error) {
	if text == "" || text == "all" {
		return netip.Prefix{}, nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}

// hasTable reports whether a rule selects a routing table.
func (r *Rule) hasTable() bool { return r.Action == "" && r.Goto == 0 }

// isSourced reports whether a rule applies only to some source addresses.
func (r *Rule) isSourced() bool { return r.From.IsValid() && r.From.Bits() > 0 }

// isFor reports whether a rule matches packets of this host from src to dst. An invalid src is
// a socket without a bound address, for which the kernel uses source 0.0.0.0. Sockets are not
// bound to an interface and carry no mark. Packets of the host itself arrive on lo.
func (r *Rule) isFor(src, dst netip.Addr) bool {
	for _, p := range []netip.Prefix{r.From, r.To} {
		if p.IsValid() && p.Addr().Is4() != dst.Is4() {
			return false
		}
	}
	match := (!r.isSourced() || src.IsValid() && r.From.Contains(src)) &&
		(!r.To.IsValid() || r.To.Contains(dst)) &&
		(r.IIF == "" || r.IIF == "lo") && r.OIF == "" && r.Mark == 0
	return match != r.Not
}

// newRules returns the rules of an inventory in the kernel's order. It omits the local table
// because isLocal handles a host's own addresses. If no rule names the main table, it adds a
// rule for it with the kernel's priority.
func newRules(inv *Inventory) []Rule {
	rules := make([]Rule, 0, len(inv.Rules)+1)
	hasMain := false
	for _, r := range inv.Rules {
		if r.Table == tableLocal {
			continue
		}
		if r.hasTable() {
			r.Table = mainIsZero(r.Table)
			hasMain = hasMain || r.Table == 0
		}
		rules = append(rules, r)
	}
	if !hasMain {
		rules = append(rules, Rule{Priority: 32766})
	}
	slices.SortStableFunc(rules, func(a, b Rule) int { return a.Priority - b.Priority })
	return rules
}

// lookup returns the possible routes of packets from src to dst, the kernel's choice first.
// src is invalid for a socket without a bound address. lookup also returns the rule that
// decided, or nil if there is no route. For a rule that drops packets, it returns a route that
// drops them.
func (h *host) lookup(src, dst netip.Addr) ([]Route, *Rule) {
	from := 0 // priority of the last goto
	for i := range h.rules {
		r := &h.rules[i]
		if r.Priority < from || !r.isFor(src, dst) {
			continue
		}
		if r.Goto != 0 {
			from = r.Goto
			continue
		}
		if r.Action != "" {
			return dropped, r
		}
		t := h.tables[r.Table]
		if t == nil {
			continue
		}
		routes := t.lookup(dst)
		if len(routes) == 0 || routes[0].Throw || r.Suppress != nil && routes[0].Dst.Bits() <= *r.Suppress {
			continue
		}
		return routes, r
	}
	return nil, nil
}

// dropped is the route of a rule that drops packets.
var dropped = []Route{{}}

// splits reports whether addresses in net may use different paths because a route or rule
// applies to only a part of net.
func (h *host) splits(net netip.Prefix) bool {
	for i := range h.rules {
		r := &h.rules[i]
		if r.To.IsValid() && r.To.Bits() > net.Bits() && net.Contains(r.To.Addr()) {
			return true
		}
		if t := h.tables[r.Table]; r.hasTable() && t != nil && t.splits(net) {
			return true
		}
	}
	return false
}

// drops describes a rule that drops packets to peer.
func (r *Rule) drops(peer netip.Addr) string {
	text := fmt.Sprintf("rule %d (", r.Priority)
	if r.Not {
		text += "not "
	}
	if r.isSourced() {
		text += fmt.Sprintf("from %s ", r.From)
	}
	if r.To.IsValid() {
		text += fmt.Sprintf("to %s ", r.To)
	}
	return fmt.Sprintf("%s%s) drops packets to %s", text, r.Action, peer)
}
