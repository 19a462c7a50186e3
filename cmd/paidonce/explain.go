package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
)

// explanationRow is everything known of one key, without names and account numbers.
type explanationRow struct {
	Operation   operationRow   `json:"operation"`
	Run         string         `json:"run,omitempty"` // of a file
	Row         int            `json:"row,omitzero"`
	Meaning     string         `json:"meaning"`
	Known       []string       `json:"known"`
	Unknown     []string       `json:"not_known"`
	Next        []string       `json:"next"`
	Timeline    []storyLine    `json:"timeline"`
	Decisions   []auditRow     `json:"decisions"`
	Proposals   []proposalRow  `json:"proposals"`
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
	Events      []eventRow     `json:"events"`
	Jobs        []jobRow       `json:"jobs"` // that the stream holds
	NotLooked   string         `json:"streams_not_looked_at,omitempty"`
	OldKey      string         `json:"correction_of,omitempty"`
	NewKey      string         `json:"corrected_by,omitempty"`
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
	var r *reveal
	command := &cobra.Command{
		Use:   "explain KEY",
		Short: "Tell everything known of one operation in words: what happened, what is not known, what may be done next",
		Long: "Tells everything known of one operation in the order it happened: jobs and how far each has come at the broker, attempts with how far each got,\n" +
			"the leases of their claims, look-ups, late news, entries, decisions, events and where they are, what the desk did, its dead letters; then what is\n" +
			"known, what is not, and the exact commands of what may be done next. The ledger tells; the broker is asked for at most 3 s for what lies in its\n" +
			"streams, and when it is away that is said.",
		Example: "  paidonce ops explain 01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11\n" +
			"  paidonce ops explain 01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11 -o json",
		Args: exactly(1, "one operation key"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			return s.explained(ctx, args[0], r, func(d *desk, e ledger.Explanation) error {
				tale := &story{Explanation: e, reveal: r.wanted}
				tale.profile, tale.known = profileOf(d.settings, e.Partner)
				tale.here = termsOf(d.settings, e.Partner)
				var err error
				if tale.KeyHistory, err = d.History(ctx, e.Key); errors.Is(err, operate.ErrNotPermitted) {
					s.say("what the desk did is not shown: this database role may not read it")
				} else if err != nil {
					return err
				}
				if tale.run, tale.row, err = rowOf(ctx, d, e.Key); err != nil {
					return err
				}
				tale.lease = d.settings.Worker.Lease
				s.look(ctx, d.settings, tale)
				return s.printExplanation(tale)
			})
		}),
	}
	r = s.revealFlags(command, "show the debtor account in full")
	return command
}

func (s *session) printExplanation(tale *story) error {
	row := explanationRowOf(tale)
	p := s.printer()
	timeline := cli.Table[storyLine]{
		Columns: []string{"at", "fence", "what", "words"},
		Cells: func(l storyLine) []string {
			fence := ""
			if l.Fence > 0 {
				fence = fmt.Sprint(l.Fence)
			}
			return []string{l.At, fence, l.What, l.Words}
		},
		Rows: row.Timeline,
	}
	switch p.Format {
	case cli.FormatJSON, cli.FormatJSONL:
		return cli.One(p, cli.Table[explanationRow]{Rows: []explanationRow{row}})
	case cli.FormatCSV:
		return cli.List(p, timeline)
	}
	if err := cli.One(p, operationTable(row.Operation)); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(s.stdout, "\n%s\n\n", row.Meaning)
	if err := cli.List(p, timeline); err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		lines []string
	}{{"Known", row.Known}, {"Not known", row.Unknown}, {"What may be done next", row.Next}} {
		if len(part.lines) > 0 {
			_, _ = fmt.Fprintf(s.stdout, "\n%s\n", part.title)
		}
		for _, line := range part.lines {
			_, _ = fmt.Fprintf(s.stdout, "  %s\n", cli.Clean(line))
		}
	}
	return nil
}

func explanationRowOf(tale *story) explanationRow {
	e := tale.Explanation
	row := explanationRow{
		Operation: operationRowOf(e.Summary, tale.reveal), Meaning: meaning(e), Run: tale.run.RunKey, Row: tale.row, PartnerKey: e.PartnerKey, Credential: e.Credential,
		Known: tale.whatIsKnown(), Unknown: tale.whatIsNot(), Next: tale.whatMayBeDone(), Timeline: tale.lines(), Decisions: []auditRow{}, Proposals: []proposalRow{},
		Epoch: e.Epoch, Fence: e.Fence, FirstSentAt: cli.Time(e.FirstSentAt), Attempts: []attemptRow{}, Facts: []factRow{}, Entries: []entryRow{},
		Unpublished: e.Unpublished, Paused: e.Paused, PayloadKept: e.Payload != nil, ReadAt: cli.Time(e.Now),
	}
	row.Events, row.Jobs, row.NotLooked = append([]eventRow{}, tale.tellEvents()...), tale.tellJobs(), tale.streams.why
	if c := tale.Replaces; c != nil && c.OldKey != uuid.Nil {
		row.OldKey = c.OldKey.String()
	}
	if c := tale.Replaced; c != nil {
		row.NewKey = c.NewKey.String()
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
			At: precise(entry.At), Event: entry.Event, Account: maskEntry(entry.Account, tale.reveal),
			Amount: signed(entry.AmountMinor, entry.Currency), Currency: entry.Currency,
		})
	}
	for _, line := range tale.Audit {
		row.Decisions = append(row.Decisions, auditRowOf(line))
	}
	for _, p := range tale.Proposals {
		row.Proposals = append(row.Proposals, proposalRowOf(p))
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
