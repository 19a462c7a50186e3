package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
)

const exampleKey = "01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11"

// profileOf is what the adapter of a configured partner declares.
func profileOf(c *config.Config, partner string) (bankclient.Profile, bool) {
	settings := c.Partners[partner]
	if settings == nil {
		return bankclient.Profile{}, false
	}
	adapter, err := app.AdapterOf(settings.Adapter)
	if err != nil {
		return bankclient.Profile{}, false
	}
	return adapter.Profile(), true
}

// rulesOf says of a partner what decisions rest on.
func rulesOf(c *config.Config) func(string) *operate.Rules {
	return func(partner string) *operate.Rules {
		p, known := profileOf(c, partner)
		if !known {
			return nil
		}
		return &operate.Rules{HonoursKeys: p.HonoursKeys, KeyWindow: p.KeyWindow, LooksUp: p.LookUp != bankclient.LookUpNone}
	}
}

func (s *session) opsResolve() *cobra.Command {
	var c *change
	var d operate.Decision
	command := &cobra.Command{
		Use:   "resolve KEY --authorized --transfer-id T | --rejected --code C | --retry",
		Short: "Decide a parked operation, on evidence and with another person's approval",
		Long: "Decides a parked operation.\n" +
			"  --authorized  the partner has the transfer: give its id. Refused for what was never sent, and for a transfer of another operation.\n" +
			"  --rejected    no money moved and none will: give a code. Refused where the partner has said that it authorized it.\n" +
			"  --retry       open it again; the worker's own rules say what may be sent. Refused for what is in doubt unless a look-up since the\n" +
			"                last attempt found nothing and half of the key's window is left, and always after a mismatch.\n" +
			"All of them wait for another person; only the retry of what is not in doubt does so above operator.amount_limits alone. Run the same command\n" +
			"again once it is approved.",
		Example: "  paidonce ops resolve " + exampleKey + " --authorized --transfer-id tr_81 --evidence 'statement 2026-11-30 line 12' --reason 'ticket 4711'\n" +
			"  paidonce ops resolve " + exampleKey + " --rejected --code not_received --evidence 'letter of the bank, ticket 4711' --reason 'ticket 4711'\n" +
			"  paidonce ops resolve " + exampleKey + " --retry --reason 'the look-up found nothing' --dry-run",
		Args: exactly(1, "one operation key"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			return s.changeOperation(ctx, args[0], c, func(at *desk, key uuid.UUID) error {
				act, err := at.Resolve(ctx, key, d, rulesOf(at.settings), c.reason, c.evidence)
				if err != nil {
					return err
				}
				return s.ask(ctx, at, c, act)
			})
		}),
	}
	c = s.deskFlags(command)
	flags := command.Flags()
	flags.BoolVar(&d.Authorized, "authorized", false, "the partner has the transfer")
	flags.StringVar(&d.TransferID, "transfer-id", "", "the partner's id of the transfer, with --authorized")
	flags.BoolVar(&d.Rejected, "rejected", false, "no money moved, and none will")
	flags.StringVar(&d.Code, "code", "", "why, with --rejected: the partner's code or a word of your own")
	flags.BoolVar(&d.Retry, "retry", false, "open it again, for the worker's rules to go on")
	command.MarkFlagsOneRequired("authorized", "rejected", "retry")
	command.MarkFlagsMutuallyExclusive("authorized", "rejected", "retry")
	command.MarkFlagsRequiredTogether("authorized", "transfer-id")
	command.MarkFlagsRequiredTogether("rejected", "code")
	return command
}

func (s *session) opsLookUp() *cobra.Command {
	var c *change
	var wait time.Duration
	command := &cobra.Command{
		Use:   "lookup KEY",
		Short: "Have a worker ask the partner about one operation now",
		Long: "Makes the look-up of a parked operation, or of one in doubt, due at once. A worker asks, with its own credentials, within a minute;\n" +
			"the command waits for what it finds. An authorized transfer that is found decides the operation.",
		Example: "  paidonce ops lookup " + exampleKey + " --reason 'the customer has called'",
		Args:    exactly(1, "one operation key"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			return s.changeOperation(ctx, args[0], c, func(at *desk, key uuid.UUID) error {
				act, err := at.AskNow(ctx, key, rulesOf(at.settings), wait)
				if err != nil {
					return err
				}
				err = s.ask(ctx, at, c, act)
				if errors.Is(err, operate.ErrNoAnswerYet) {
					return cli.Exit(cli.TryAgain, fmt.Errorf("%w: is a worker running?", err))
				}
				if err == nil && !c.dryRun {
					s.say("%s", meaning(act.Answer))
				}
				return err
			})
		}),
	}
	c = s.deskFlags(command)
	command.Flags().DurationVar(&wait, "wait", 90*time.Second, "how long to wait for the answer")
	return command
}

func (s *session) opsCancel() *cobra.Command {
	var c *change
	command := &cobra.Command{
		Use:   "cancel KEY",
		Short: "End an operation that was not sent",
		Long: "Ends an operation that is open and not in doubt: nothing was sent, and nothing will be. A worker that was first wins, and then\n" +
			"the command says where the operation stands.",
		Example: "  paidonce ops cancel " + exampleKey + " --reason 'the customer took it back'",
		Args:    exactly(1, "one operation key"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			return s.changeOperation(ctx, args[0], c, func(at *desk, key uuid.UUID) error {
				act, err := at.Cancel(ctx, key)
				if err != nil {
					return err
				}
				return s.ask(ctx, at, c, act)
			})
		}),
	}
	c = s.deskFlags(command)
	return command
}

// changeOperation runs a change of one operation at the desk.
func (s *session) changeOperation(ctx context.Context, text string, c *change, body func(*desk, uuid.UUID) error) error {
	key, err := cli.ParseKey(text)
	if err != nil {
		return err
	}
	if err := c.complete(); err != nil {
		return err
	}
	return s.atDesk(ctx, func(d *desk) error {
		err := body(d, key)
		if errors.Is(err, ledger.ErrNotFound) {
			return noOperation(key)
		}
		return err
	})
}

func noOperation(key uuid.UUID) error {
	return cli.Exit(cli.NotFound, fmt.Errorf("%s: no such operation; its job may wait in the queue or be a dead letter", key))
}

// reveal is a request to see names and account numbers.
type reveal struct {
	wanted bool
	reason string
}

func (s *session) revealFlags(command *cobra.Command, what string) *reveal {
	r := &reveal{}
	command.Flags().BoolVar(&r.wanted, "reveal", false, what+"; needs --reason and an operator's token, and is written into the audit log first")
	command.Flags().StringVar(&r.reason, "reason", "", "why it must be seen (with --reveal)")
	return r
}

// revealing writes the line of the audit log before anything is shown. Without --reveal it does nothing.
func (s *session) revealing(ctx context.Context, r *reveal, target string) error {
	if !r.wanted {
		return nil
	}
	c := &change{reason: r.reason}
	if err := c.complete(); err != nil {
		return err
	}
	return s.withDesk(ctx, func(d *operate.Service, by operate.Operator) error {
		_, err := d.Do(ctx, c.request(by, operate.Reveal(target)))
		return err
	})
}
