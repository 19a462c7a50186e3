package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/queue"
)

type recoveryRow struct {
	FromSystem   string `json:"from_system"`
	FromTimeline int32  `json:"from_timeline"`
	ToSystem     string `json:"to_system"`
	ToTimeline   int32  `json:"to_timeline"`
	FromDatabase uint32 `json:"from_database"` // object ids: of the database and of its table of operations
	FromTable    uint32 `json:"from_table"`
	ToDatabase   uint32 `json:"to_database"`
	ToTable      uint32 `json:"to_table"`
	PutInDoubt   int64  `json:"put_in_doubt"`
	DoubtBefore  string `json:"doubt_before,omitempty"`
	LostSince    string `json:"lost_since,omitempty"`
	DeliverFrom  uint64 `json:"deliver_from,omitempty"`
	DryRun       bool   `json:"dry_run"`
}

func (s *session) recover() *cobra.Command {
	var c *change
	var dryRun, force, settled, asOwner bool
	var redo time.Duration
	var since string
	command := &cobra.Command{
		Use:   "recover",
		Short: "Accept where the database is after a failover or a restore",
		Long: "After a failover or a restore, claims that were committed may be missing, and would look as if they never were. Recover puts\n" +
			"every unfinished operation in doubt, so that the partner is asked before anything is sent, and then lets claims go on.\n" +
			"Operations may be missing whose jobs were acknowledged: the broker delivers again what it has stored within --redo. What was\n" +
			"told cancelled is not sent. A pause that was lost is not set again: see `paidonce pause`.\n" +
			"Needs the owner's login in the database and an operator's token: the log names the person. Where what was restored knows no token of\n" +
			"anybody here, --as-owner does without. Does nothing while the ledger is where it remembers to be, unless forced.\n\n" +
			"A source may repeat a withdrawal that was lost. A key of version 7 tells when it was made; every other key is asked after\n" +
			"from then on, which takes longer, and parks where a partner has no reliable look-up, until --settled: you have asked every\n" +
			"source, and none will repeat what it ordered before the recovery.",
		Example: "  paidonce recover --dry-run\n  paidonce recover --reason 'failover to db2'\n  paidonce recover --settled --reason 'wallet and payroll have no order open from before'",
		Args:    noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error {
			if !dryRun {
				if err := c.complete(); err != nil {
					return err
				}
			}
			return s.openDesk(ctx, func(d *desk) error {
				lost, err := timeFlag("lost-since", since)
				if err != nil {
					return err
				}
				if settled {
					return s.settle(ctx, d, c, dryRun, asOwner)
				}
				return s.recoverLedger(ctx, d, c, recoveryOptions{dryRun: dryRun, asOwner: asOwner, Force: force, Redo: redo.String(), redo: redo, LostSince: since, lost: lost})
			})
		}),
	}
	c = s.changeFlags(command)
	command.Flags().BoolVar(&dryRun, "dry-run", false, "show where the ledger remembers to be and where it is, and change nothing")
	command.Flags().BoolVar(&force, "force", false, "also when the database is found where it was, as after a disk's snapshot was put back")
	command.Flags().BoolVar(&settled, "settled", false, "no source will repeat what was lost: believe keys that tell no time again")
	command.Flags().BoolVar(&asOwner, "as-owner", false, "without an operator's token, in the name of the owner's login alone")
	command.Flags().DurationVar(&redo, "redo", queue.RedoWindow, "how far back jobs are delivered again; longer than what may be lost, 0 = none")
	command.Flags().StringVar(&since, "lost-since", "", "the moment that a snapshot or a dump is of, as 2026-11-30T02:00:00Z, or how long ago that was. Not given with --force: keys that\ntell no time count as sent at any time")
	command.MarkFlagsMutuallyExclusive("settled", "force")
	command.MarkFlagsMutuallyExclusive("settled", "lost-since")
	command.MarkFlagsMutuallyExclusive("settled", "redo")
	return command
}

// recoveryOptions are the flags of recover.
type recoveryOptions struct {
	Force           bool   `json:"force,omitzero"`
	Redo            string `json:"redo"`
	LostSince       string `json:"lost_since,omitzero"`
	dryRun, asOwner bool
	redo            time.Duration
	lost            time.Time
}

// recoveredBy is who recovers: somebody with the login of the ledger's owner, in the name of an operator where one is known.
func (s *session) recoveredBy(ctx context.Context, d *desk, asOwner bool) (operate.Operator, error) {
	owner, err := d.Owner(ctx)
	if err != nil || asOwner {
		return owner, err
	}
	by, err := s.identify(ctx, d)
	if errors.Is(err, operate.ErrNoOperators) {
		return owner, nil
	}
	if cli.CodeOf(err) == cli.NotAllowed {
		err = fmt.Errorf("%w; where what was restored knows no token of anybody here: --as-owner", err)
	}
	return by, err
}

func (s *session) recoverLedger(ctx context.Context, d *desk, c *change, o recoveryOptions) error {
	id, err := d.ledger.Identity(ctx)
	if err != nil {
		return err
	}
	row := recoveryRow{FromSystem: id.System, FromTimeline: id.Timeline, FromDatabase: id.Database, FromTable: id.Operations,
		ToSystem: id.FoundSystem, ToTimeline: id.FoundTimeline, ToDatabase: id.FoundDatabase, ToTable: id.FoundOperations, DryRun: o.dryRun}
	switch {
	case !id.Moved() && !o.Force:
		s.say("the ledger is where it remembers to be: nothing to recover")
	case !o.dryRun:
		if d.by, err = s.recoveredBy(ctx, d, o.asOwner); err != nil {
			return err
		}
		done, err := d.Do(ctx, c.request(d.by, operate.Plain{Act: "recover", By: operate.RoleOperator, On: "system " + id.FoundSystem, What: o,
			Does: func(ctx context.Context, by operate.Operator) (string, error) {
				return s.recoverNow(ctx, d, c.reason, by.Name, o, &row)
			}}))
		if done.Outcome == operate.OutcomePartial { // not 75: the same command without --force would find nothing to do, and end well
			return errors.Join(s.showRecovery(row), cli.Exit(cli.Partial, err))
		}
		if err != nil {
			return err
		}
	}
	return s.showRecovery(row)
}

func (s *session) showRecovery(row recoveryRow) error {
	return cli.One(s.printer(), cli.Table[recoveryRow]{
		Columns: []string{"from", "to", "put_in_doubt", "doubt_before", "lost_since", "deliver_from", "dry_run"},
		Cells: func(r recoveryRow) []string {
			at := func(system string, timeline int32, database, table uint32) string {
				return fmt.Sprintf("%s/%d/%d/%d", system, timeline, database, table)
			}
			return []string{at(r.FromSystem, r.FromTimeline, r.FromDatabase, r.FromTable), at(r.ToSystem, r.ToTimeline, r.ToDatabase, r.ToTable),
				fmt.Sprint(r.PutInDoubt), r.DoubtBefore, r.LostSince, fmt.Sprint(r.DeliverFrom), fmt.Sprint(r.DryRun)}
		},
		Rows: []recoveryRow{row},
	})
}

// recoverNow recovers also without the broker, and says then that it is to be done again: what it has lost, only the stream knows.
func (s *session) recoverNow(ctx context.Context, d *desk, reason, by string, o recoveryOptions, row *recoveryRow) (string, error) {
	newest, nc, lost := s.newestJob(ctx, d)
	loss := ledger.Loss{NewestJob: newest, Since: o.lost}
	if nc != nil {
		defer nc.Close()
		if lost == nil {
			loss.Cancelled, lost = queue.CancelledSince(ctx, nc, newest.Add(-max(o.redo, queue.RedoWindow)))
		}
	}
	done, err := d.ledger.Recover(ctx, loss, reason, by)
	if err != nil {
		return "", err
	}
	row.PutInDoubt, row.DoubtBefore, row.LostSince = done.PutInDoubt, cli.Time(done.Before), cli.Time(done.LostSince)
	s.say("keys that are not of version 7 are asked after first, until `paidonce recover --settled`")
	if lost == nil && o.redo > 0 {
		var back queue.Rewound
		back, lost = queue.Rewind(ctx, nc, o.redo)
		row.DeliverFrom = back.From
	}
	if lost != nil {
		return operate.OutcomePartial, fmt.Errorf("the ledger is recovered, but jobs that it may have lost are not delivered again, and what was told cancelled is not known, run it again with --force: %w", lost)
	}
	return operate.OutcomeDone, nil
}

// clockAhead is how far a broker's clock is believed to run ahead: one job that is stamped with a year to come does not put every key in doubt until then.
const clockAhead = 24 * time.Hour

// newestJob asks the broker how far its clock has come, and keeps the connection.
func (s *session) newestJob(ctx context.Context, d *desk) (newest time.Time, nc *nats.Conn, err error) {
	if nc, err = s.connect(ctx, d.settings, queue.RoleOperator, ""); err != nil {
		return newest, nil, err
	}
	stamped, err := queue.NewestJob(ctx, nc)
	if newest = believed(stamped, time.Now()); newest.Before(stamped) {
		s.say("the broker has stamped a job at " + cli.Time(stamped) + ": its clock was wrong, and is not reckoned with beyond a day")
	}
	return newest, nc, err
}

// believed is when the broker may have stamped its newest job, by what it says and our clock.
func believed(stamped, now time.Time) time.Time {
	if most := now.Add(clockAhead); stamped.After(most) {
		return most
	}
	return stamped
}

// settle ends the doubt about keys that tell no time.
func (s *session) settle(ctx context.Context, d *desk, c *change, dryRun, asOwner bool) error {
	id, err := d.ledger.Identity(ctx)
	switch {
	case err != nil:
		return err
	case id.LostSince.IsZero():
		s.say("nothing is open from a recovery")
		return nil
	case dryRun:
		s.say("keys that tell no time are asked after because of what may be lost since " + cli.Time(id.LostSince))
		return nil
	}
	if d.by, err = s.recoveredBy(ctx, d, asOwner); err != nil {
		return err
	}
	_, err = d.Do(ctx, c.request(d.by, operate.Plain{Act: "recover_settled", By: operate.RoleOperator, On: "system " + id.FoundSystem,
		What: map[string]string{"lost_since": cli.Time(id.LostSince)}, Does: func(ctx context.Context, _ operate.Operator) (string, error) {
			_, err := d.ledger.Settle(ctx)
			return operate.OutcomeDone, err
		}}))
	return err
}
