package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
)

// explanationRow is everything known of one key, without names and account numbers.
type explanationRow struct {
	Operation   operationRow   `json:"operation"`
	Meaning     string         `json:"meaning"`
	PartnerKey  string         `json:"partner_key,omitempty"`
	Credential  string         `json:"credential,omitempty"`
	Epoch       int16          `json:"epoch"`
	Fence       int32          `json:"fence"`
	FirstSentAt string         `json:"first_sent_at,omitempty"`
	LeaseUntil  string         `json:"lease_until,omitempty"`
	Attempts    []attemptRow   `json:"attempts"`
	Facts       []factRow      `json:"observations"`
	Entries     []entryRow     `json:"entries"`
	Unpublished []string       `json:"unpublished_events,omitempty"`
	Paused      []ledger.Pause `json:"paused,omitempty"`
	PayloadKept bool           `json:"payload_kept"`
	ReadAt      string         `json:"read_at"`
}

type attemptRow struct {
	At         string `json:"at"`
	Fence      int32  `json:"fence"`
	Partner    string `json:"partner"`
	Credential string `json:"credential"`
	Endpoint   string `json:"endpoint"`
	Renderer   int16  `json:"renderer"`
	BodySHA256 string `json:"body_sha256"`
	PartnerKey string `json:"partner_key"`
	EndToEndID string `json:"end_to_end_id"`
}

type factRow struct {
	At            string         `json:"at"`
	Fence         int32          `json:"fence"`
	Kind          string         `json:"kind"`
	Verdict       string         `json:"verdict,omitempty"`
	Authoritative bool           `json:"authoritative,omitzero"`
	TransferID    string         `json:"transfer_id,omitempty"`
	Code          string         `json:"code,omitempty"`
	Evidence      jsontext.Value `json:"evidence,omitempty"`
}

type entryRow struct {
	At       string `json:"at"`
	Event    string `json:"event"`
	Account  string `json:"account"`
	Amount   string `json:"amount"`
	Currency string `json:"currency"`
}

func (s *session) opsExplain() *cobra.Command {
	var reveal bool
	command := &cobra.Command{
		Use:   "explain KEY",
		Short: "Tell everything known of one operation, in the order it happened",
		Example: "  paidonce ops explain 01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11\n" +
			"  paidonce ops explain 01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11 -o json",
		Args: exactly(1, "one operation key"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			return s.explained(ctx, args[0], func(e ledger.Explanation) error { return s.printExplanation(e, reveal) })
		}),
	}
	command.Flags().BoolVar(&reveal, "reveal", false, "show the debtor account in full")
	return command
}

func (s *session) printExplanation(e ledger.Explanation, reveal bool) error {
	row := explanationRowOf(e, reveal)
	p := s.printer()
	if p.Format == cli.FormatJSON || p.Format == cli.FormatJSONL {
		return cli.One(p, cli.Table[explanationRow]{Rows: []explanationRow{row}})
	}
	if p.Format == cli.FormatCSV {
		return cli.List(p, timelineTable(row))
	}
	if err := cli.One(p, operationTable(row.Operation)); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(s.stdout, "\n%s\n\n", row.Meaning)
	if err := cli.List(p, timelineTable(row)); err != nil {
		return err
	}
	return s.printFooter(row)
}

func (s *session) printFooter(row explanationRow) error {
	w := tabwriter.NewWriter(s.stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w)
	for _, line := range [][2]string{
		{"partner key", row.PartnerKey},
		{"unpublished events", strings.Join(row.Unpublished, ", ")},
	} {
		if line[1] != "" {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", line[0], cli.Clean(line[1]))
		}
	}
	for _, pause := range row.Paused {
		_, _ = fmt.Fprintf(w, "paused\t%s %s since %s by %s: %s\n", pause.Scope, pause.Name, cli.Time(pause.At), cli.Clean(pause.By), cli.Clean(pause.Reason))
	}
	return w.Flush()
}

func explanationRowOf(e ledger.Explanation, reveal bool) explanationRow {
	row := explanationRow{
		Operation: operationRowOf(e.Summary, reveal), Meaning: meaning(e), PartnerKey: e.PartnerKey, Credential: e.Credential,
		Epoch: e.Epoch, Fence: e.Fence, FirstSentAt: cli.Time(e.FirstSentAt), Attempts: []attemptRow{}, Facts: []factRow{}, Entries: []entryRow{},
		Unpublished: e.Unpublished, Paused: e.Paused, PayloadKept: e.Payload != nil, ReadAt: cli.Time(e.Now),
	}
	if e.State == ledger.StateClaimed {
		row.LeaseUntil = cli.Time(e.LeaseUntil)
	}
	row.Operation.Attempts = len(e.Attempts)
	for _, a := range e.Attempts {
		row.Attempts = append(row.Attempts, attemptRow{
			At: precise(a.At), Fence: a.Fence, Partner: a.Partner, Credential: a.Credential, Endpoint: a.Endpoint, Renderer: a.Renderer,
			BodySHA256: fmt.Sprintf("%x", a.BodySHA256), PartnerKey: a.PartnerKey, EndToEndID: a.EndToEndID,
		})
	}
	for _, f := range e.Facts {
		row.Facts = append(row.Facts, factRow{
			At: precise(f.At), Fence: f.Fence, Kind: string(f.Kind), Verdict: f.Verdict, Authoritative: f.Authoritative,
			TransferID: f.TransferID, Code: f.Code, Evidence: evidence(f.Evidence),
		})
	}
	for _, entry := range e.Entries {
		row.Entries = append(row.Entries, entryRow{
			At: precise(entry.At), Event: entry.Event, Account: maskEntry(entry.Account, reveal),
			Amount: signed(entry.AmountMinor, entry.Currency), Currency: entry.Currency,
		})
	}
	return row
}

// evidence leaves out the empty object.
func evidence(raw []byte) jsontext.Value {
	value := jsontext.Value(raw)
	if len(raw) == 0 || !value.IsValid() || string(raw) == "{}" {
		return nil
	}
	return value
}

// maskEntry masks the customer's account in customer:<source>/<account>.
func maskEntry(account string, reveal bool) string {
	head, tail, ok := strings.Cut(account, "/")
	if reveal || !ok || !strings.HasPrefix(account, "customer:") {
		return account
	}
	return head + "/" + cli.MaskAccount(tail)
}

func signed(minor int64, currency string) string {
	if minor < 0 {
		return "-" + money.Amount{Minor: -minor, Currency: currency}.Decimal()
	}
	return money.Amount{Minor: minor, Currency: currency}.Decimal()
}

func precise(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// meaning says in one sentence where the operation stands and who moves it next.
func meaning(e ledger.Explanation) string {
	doubt := ""
	if e.InDoubt {
		doubt = " It is in doubt: the partner may have moved the money, and is asked before anything is sent again."
	}
	switch e.State {
	case ledger.StateAuthorized:
		return "Authorized: the partner has the transfer, under the id shown."
	case ledger.StateRejected:
		return "Rejected: the partner refused it for the reason shown, and no money moved."
	case ledger.StateCancelled:
		return "Cancelled: it was never sent, and will not be."
	case ledger.StateParked:
		return "Parked: a person must decide. No machine sends for it; look-ups and webhooks go on." + doubt
	case ledger.StateClaimed:
		return "Claimed: a worker is at it, or has died; then the sweep takes over when the lease ends." + doubt
	}
	if e.HeldReason != "" {
		return "Held: open, and not started for the reason shown." + doubt
	}
	return "Open: the sweep takes it at the due time." + doubt
}

type timelineRow struct {
	At     string
	Fence  int32
	What   string
	Detail string
}

// timelineTable puts attempts, observations and entries in the order of the database clock.
func timelineTable(row explanationRow) cli.Table[timelineRow] {
	var lines []timelineRow
	for i, a := range row.Attempts {
		lines = append(lines, timelineRow{a.At, a.Fence, fmt.Sprintf("attempt %d", i+1), a.Partner + " " + a.Endpoint + " as " + a.Credential})
	}
	for _, f := range row.Facts {
		var detail []string
		for _, part := range []string{f.Verdict, f.Code, f.TransferID, string(f.Evidence)} {
			if part != "" {
				detail = append(detail, part)
			}
		}
		lines = append(lines, timelineRow{f.At, f.Fence, f.Kind, strings.Join(detail, " ")})
	}
	for _, e := range row.Entries {
		lines = append(lines, timelineRow{e.At, 0, "entry " + e.Event, e.Account + " " + e.Amount + " " + e.Currency})
	}
	slices.SortStableFunc(lines, func(a, b timelineRow) int { return strings.Compare(a.At, b.At) })
	return cli.Table[timelineRow]{
		Columns: []string{"at", "fence", "what", "detail"},
		Cells: func(l timelineRow) []string {
			fence := ""
			if l.Fence > 0 {
				fence = fmt.Sprint(l.Fence)
			}
			return []string{l.At, fence, l.What, l.Detail}
		},
		Rows: lines,
	}
}
