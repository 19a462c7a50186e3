package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/cmd/internal/prove"
	"github.com/paidonce/paidonce/worker/queue"
)

const (
	progressAfter = 2 * time.Second // a short run says nothing
	progressEvery = 5 * time.Second
	findingsSaid  = 3 // in words, at the end of a run that found something
)

func (s *session) prove() *cobra.Command {
	var since string
	var options prove.Options
	command := &cobra.Command{
		Use:   "prove",
		Short: "Hold ledger, streams and the partners' statements against each other, key by key",
		Long: "Reads the ledger, the streams and every partner's statement, each on its own, and judges every key: exactly one place, at most\n" +
			"one transfer, equal amounts, no orphans on either side, a balanced journal, every outcome published. Changes nothing; needs no\n" +
			"right to write on the ledger, and the operator's role at the broker. May run while workers do: what is not decided yet is open.\n" +
			"Point it at the primary. Exit code: 0 only if all of it holds, 1 otherwise.",
		Example: "  paidonce prove\n  paidonce prove -o json\n  paidonce prove --since 24h --partner northbank --findings 100\n" +
			"  paidonce prove --since 2026-11-01T00:00:00Z --tmp /var/tmp",
		Args: noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error {
			var err error
			if options.Since, err = sinceTime(since, time.Now()); err != nil {
				return err
			}
			if options.Findings < 1 || options.Patience < 0 {
				return cli.Exit(cli.Usage, errors.New("--findings must be at least 1, and --patience not negative"))
			}
			options.Patience = max(options.Patience, 1) // zero would be the default
			return s.runProve(ctx, options)
		}),
	}
	flags := command.Flags()
	flags.StringVar(&since, "since", "", "judge only operations made since a time (2026-11-01T00:00:00Z) or so long ago (24h)")
	flags.StringVar(&options.Partner, "partner", "", "judge only operations of this partner")
	flags.IntVar(&options.Findings, "findings", 20, "most findings to list; all are counted")
	flags.StringVar(&options.Dir, "tmp", "", "where a private directory of about 500 bytes per operation is made (default: the system's)")
	flags.DurationVar(&options.Patience, "patience", 30*time.Second, "longest wait until a partner's statement shows what was just authorized")
	return command
}

// sinceTime reads the value of --since.
func sinceTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago > 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, cli.Exit(cli.Usage, errors.New("--since takes a time such as 2026-11-01T00:00:00Z, or a duration such as 24h"))
	}
	return at, nil
}

// paced keeps to the partner's configured rate, which the workers share.
type paced struct{ *bankclient.Partner }

// Statement waits for a rate token first.
func (p paced) Statement(ctx context.Context, from, to time.Time, cursor string) ([]bankclient.Seen, string, error) {
	if err := p.Gate().Take(ctx); err != nil {
		return nil, "", err
	}
	return p.Partner.Statement(ctx, from, to, cursor)
}

func (s *session) runProve(ctx context.Context, options prove.Options) error {
	c, err := s.load()
	if err != nil {
		return err
	}
	if options.Partner != "" && c.Partners[options.Partner] == nil {
		return cli.Exit(cli.NotFound, fmt.Errorf("partner %q is not configured", options.Partner))
	}
	nc, err := s.connect(ctx, c, queue.RoleOperator, "")
	if err != nil {
		return err
	}
	defer nc.Close()
	if options.Broker, err = jetstream.New(nc); err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	if err := sources(c, &options); err != nil {
		return err
	}
	options.Progress = s.progress(time.Now())
	report, err := prove.Run(ctx, options)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = fmt.Errorf("%w: run `paidonce migrate up`", queue.ErrNotProvisioned)
	}
	if err != nil {
		return err
	}
	return s.showProof(report)
}

// sources fills in what the settings say about where to read.
func sources(c *config.Config, options *prove.Options) error {
	url, err := c.ConnectURL()
	if err != nil {
		return err
	}
	options.DatabaseURL = url.Reveal()
	banks, err := app.Banks(c)
	if err != nil {
		return err
	}
	for _, b := range banks {
		options.Banks = append(options.Banks, paced{b.Partner})
	}
	options.Routes = map[string]string{}
	for name, route := range c.Routes {
		options.Routes[name] = route.Partner
	}
	return nil
}

// progress says what is being read, now and then.
func (s *session) progress(began time.Time) func(string, int64) {
	next := began.Add(progressAfter)
	return func(reading string, done int64) {
		if now := time.Now(); now.After(next) {
			next = now.Add(progressEvery)
			s.say("%s: %s: %d", now.Sub(began).Round(time.Second), reading, done)
		}
	}
}

func (s *session) showProof(report prove.Report) error {
	for _, note := range report.Notes {
		s.say("note: %s", cli.Clean(note))
	}
	if err := cli.One(s.printer(), proofTable(report)); err != nil {
		return err
	}
	if s.printer().Format == cli.FormatTable && len(report.Findings) > 0 {
		_, _ = fmt.Fprintln(s.stdout)
		err := cli.List(s.printer(), cli.Table[prove.Finding]{
			Columns: []string{"kind", "key", "partner", "transfer_id", "text"},
			Cells: func(f prove.Finding) []string {
				return []string{string(f.Kind), f.Key, f.Partner, f.TransferID, f.Text}
			},
			Rows: report.Findings,
		})
		if err != nil {
			return err
		}
	}
	if report.Held {
		return nil
	}
	return cli.Exit(cli.Failure, errors.New(cli.Clean(fmt.Sprintf("not proved: %d faults", report.Faults()))+inWords(report.Findings)))
}

// inWords tells the first findings, and what to do about each kind once.
func inWords(findings []prove.Finding) string {
	var b strings.Builder
	advised := map[prove.Kind]bool{}
	for _, f := range findings[:min(len(findings), findingsSaid)] {
		b.WriteString("\n  " + string(f.Kind) + ": ")
		for _, name := range []string{f.Key, f.TransferID} {
			if name != "" {
				b.WriteString(name + " ")
			}
		}
		b.WriteString(cli.Clean(f.Text))
		if !advised[f.Kind] {
			b.WriteString("\n    " + f.Advice)
			advised[f.Kind] = true
		}
	}
	return b.String()
}

func proofTable(report prove.Report) cli.Table[prove.Report] {
	return cli.Table[prove.Report]{
		Columns: []string{
			"held", "keys", "authorized", "rejected", "cancelled", "parked", "open", "dead", "twice", "lost", "orphans_ours", "orphans_theirs",
			"mismatched", "unbalanced", "misplaced", "unannounced", "contradicted", "strays", "unproved", "outbox_pending", "jobs_pending",
			"corrections_pending", "transfers", "younger",
			"checked_at",
		},
		Cells: func(r prove.Report) []string {
			cells := []string{fmt.Sprint(r.Held)}
			for _, n := range []int64{
				r.Keys, r.Authorized, r.Rejected, r.Cancelled, r.Parked, r.Open, r.Dead, r.Twice, r.Lost, r.OrphansOurs, r.OrphansTheirs,
				r.Mismatched, r.Unbalanced, r.Misplaced, r.Unannounced, r.Contradicted, r.Strays, r.Unproved, r.OutboxPending, r.JobsPending,
				r.CorrectionsPending, r.Transfers, r.Younger,
			} {
				cells = append(cells, fmt.Sprint(n))
			}
			return append(cells, cli.Time(r.CheckedAt))
		},
		Rows: []prove.Report{report},
	}
}
