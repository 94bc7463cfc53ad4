package netif

import (
	"bytes"
	"fmt"
	"io"
	"text/tabwriter"
)

// Explain writes the choice in human-readable form: a table of the chosen interface and the
// rejected ones with reasons, then the warnings. Its errors come from w.
func (c Choice) Explain(w io.Writer) error {
	var out bytes.Buffer // writes to it cannot fail
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "INTERFACE\tUSED\tWHY")
	fmt.Fprintf(table, "%s\tyes\t%s/%d, mtu %d: %s\n", c.Interface, c.Addr, c.Prefix.Bits(), c.MTU, c.Why)
	for _, r := range c.Rejected {
		fmt.Fprintf(table, "%s\tno\t%s\n", r.Interface, r.Reason)
	}
	table.Flush()
	for _, warning := range c.Warnings {
		fmt.Fprintf(&out, "warning: %s\n", warning)
	}
	_, err := w.Write(out.Bytes())
	return err
}
