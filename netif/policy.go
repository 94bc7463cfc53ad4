package netif

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

// Tables with a name of their own (rt_tables of iproute2).
const (
	tableDefault = 253
	tableMain    = 254
	tableLocal   = 255
)

var tableNames = map[string]tableID{"default": tableDefault, "main": tableMain, "local": tableLocal}

// mainIsZero gives the main table one number.
func mainIsZero(table int) int {
	if table == tableMain {
		return 0
	}
	return table
}

// tableID reads a routing table as a number, or as one of iproute2's words.
type tableID int

// UnmarshalJSON reads 100, "100" or "main".
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

// UnmarshalJSON reads a rule; besides prefixes, From and To may be a bare
// address, and "all" as in the output of "ip rule".
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

// hasTable says whether a table decides for the packets of a rule.
func (r *Rule) hasTable() bool { return r.Action == "" && r.Goto == 0 }

// isSourced says whether a rule is for some source addresses only.
func (r *Rule) isSourced() bool { return r.From.IsValid() && r.From.Bits() > 0 }

// isFor says whether a rule decides for packets of this host from src to dst.
// An invalid src is a socket that is bound to no address: the kernel then
// compares the source 0.0.0.0. Sockets are bound to no interface and carry no
// mark, and packets of the host itself come in by lo.
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

// newRules puts the rules of an inventory in the kernel's order. The local table
// is left out, because a host's own addresses are looked up apart; the main one
// comes last where no rule names it, which is where the kernel has it.
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

// lookup returns the routes that packets from src to dst may take, the kernel's
// own choice first; src is invalid for a socket that is bound to no address. The
// rule that decided comes with them; nil if there is no route. A rule that drops
// packets comes with a route that does.
func (h *host) lookup(src, dst netip.Addr) ([]Route, *Rule) {
	from := 0 // the priority that a rule went to
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

// dropped stands for the route of a rule that drops packets.
var dropped = []Route{{}}

// splits says whether addresses in net may take different ways, because some
// route or rule is for a part of it only.
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

// drops says that a rule drops packets to peer.
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
