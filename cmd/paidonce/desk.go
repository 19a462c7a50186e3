package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/queue"
)

// desk is where a command changes things: the settings, the ledger, and the service that asks who, why and whether another person agrees.
type desk struct {
	*operate.Service
	settings *config.Config
	ledger   *ledger.Ledger
	by       operate.Operator
}

// withDesk runs body for the operator of the settings.
func (s *session) withDesk(ctx context.Context, body func(*operate.Service, operate.Operator) error) error {
	return s.atDesk(ctx, func(d *desk) error { return body(d.Service, d.by) })
}

// atDesk is withDesk with all that belongs to it.
func (s *session) atDesk(ctx context.Context, body func(*desk) error) error {
	return s.openDesk(ctx, func(d *desk) (err error) {
		if d.by, err = s.identify(ctx, d); err != nil {
			return err
		}
		return body(d)
	})
}

// openDesk asks nobody who they are: for what may be seen under the database's rights alone, and for the owner of the database.
func (s *session) openDesk(ctx context.Context, body func(*desk) error) error {
	return s.withLedger(ctx, func(c *config.Config, l *ledger.Ledger) error {
		service, closeDesk, err := app.OpenDesk(ctx, c, l, func(ctx context.Context) (*nats.Conn, error) { return s.connect(ctx, c, queue.RoleOperator, "") })
		if err != nil {
			return err
		}
		defer closeDesk()
		return body(&desk{Service: service, settings: c, ledger: l})
	})
}

func (s *session) identify(ctx context.Context, d *desk) (operate.Operator, error) {
	token, err := d.settings.OperatorToken()
	if err != nil {
		return operate.Operator{}, err
	}
	if token == "" { // says, too, when there are no operators at all
		if _, err := d.Identify(ctx, ""); !errors.Is(err, operate.ErrUnknownOperator) {
			return operate.Operator{}, err
		}
		return operate.Operator{}, cli.Exit(cli.NotAllowed, errors.New("nobody is known to ask for this: name the file with your token, "+
			"with --operator-token-file or PAIDONCE_OPERATOR_TOKEN_FILE"))
	}
	return d.Identify(ctx, token.Reveal())
}

// change is why something is to be changed, and whether only to try.
type change struct {
	reason, evidence string
	dryRun           bool
	showToken        bool // of an operator who was made: there is no file for it
}

func (s *session) changeFlags(command *cobra.Command) *change {
	c := &change{}
	command.Flags().StringVar(&c.reason, "reason", "", "why (needed)")
	return c
}

// deskFlags are those of a change through the desk.
func (s *session) deskFlags(command *cobra.Command) *change {
	c := s.changeFlags(command)
	command.Flags().StringVar(&c.evidence, "evidence", "", "where the proof is: a ticket, a line of a statement")
	command.Flags().BoolVar(&c.dryRun, "dry-run", false, "check everything by the same code, and change nothing")
	return c
}

// complete refuses a change without a reason.
func (c *change) complete() error {
	if c.reason == "" {
		return cli.Exit(cli.Usage, errors.New("a change needs --reason"))
	}
	return nil
}

// request is what the desk is asked for.
func (c *change) request(by operate.Operator, act operate.Act) operate.Request {
	return operate.Request{By: by, Reason: c.reason, Evidence: c.evidence, Act: act, DryRun: c.dryRun}
}

// changeRow is what every change through the desk prints.
type changeRow struct {
	Act      string `json:"act"`
	Target   string `json:"target"`
	Outcome  string `json:"outcome"`
	By       string `json:"by"`
	Audit    int64  `json:"audit,omitzero"`
	Proposal string `json:"proposal,omitempty"`
	Needs    string `json:"needs,omitempty"`
	Token    string `json:"token,omitempty"` // of a new operator; shown this once
}

// ask does the act of a command and prints what came of it. What waits for another person is printed too, and ends with its own exit code.
func (s *session) ask(ctx context.Context, d *desk, c *change, act operate.Act) error {
	done, err := d.Do(ctx, c.request(d.by, act))
	if err != nil && !errors.Is(err, operate.ErrWaiting) && done.Outcome == "" {
		return err
	}
	row := changeRow{Act: act.Name(), Target: act.Target(), Outcome: done.Outcome, By: d.by.Name, Audit: done.AuditID}
	if done.Proposal != nil {
		row.Proposal = done.Proposal.ID.String()
	}
	if done.Waits {
		row.Needs = "approval by another person"
	}
	if person, ok := act.(*operate.Person); ok && c.showToken {
		row.Token = person.Token
	}
	if errors.Is(err, operate.ErrWaiting) {
		s.say("another person approves with: paidonce proposals approve %s --reason ...   then run the same command again", row.Proposal)
	}
	return errors.Join(cli.One(s.printer(), cli.Table[changeRow]{
		Columns: []string{"act", "target", "outcome", "by", "audit", "proposal", "needs", "token"},
		Cells: func(r changeRow) []string {
			audit := ""
			if r.Audit > 0 {
				audit = fmt.Sprint(r.Audit)
			}
			return []string{r.Act, r.Target, r.Outcome, r.By, audit, r.Proposal, r.Needs, r.Token}
		},
		Rows: []changeRow{row},
	}), err)
}
