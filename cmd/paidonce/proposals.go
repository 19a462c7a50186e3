package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/batch"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/cmd/internal/operate/dead"
	"github.com/paidonce/paidonce/ledger/money"
)

func (s *session) proposals() *cobra.Command {
	return s.group("proposals", "What waits for the approval of another person",
		"  paidonce proposals list --state open\n  paidonce proposals approve 0193a1f2-7a52-7c3e-9b6e-2f6f0b0f4a11 --reason 'checked with the bank'",
		s.proposalsList(), s.proposalsShow(), s.proposalsDecide("approve", "Agree to a proposal; its author then runs the same command again"),
		s.proposalsDecide("decline", "End a proposal"))
}

type proposalRow struct {
	ID        string         `json:"id"`
	State     string         `json:"state"`
	Overtaken string         `json:"overtaken,omitempty"` // by what
	Act       string         `json:"act"`
	Target    string         `json:"target"`
	By        string         `json:"by"`
	Reason    string         `json:"reason"`
	Evidence  string         `json:"evidence,omitempty"`
	Weight    string         `json:"weight,omitempty"`
	At        string         `json:"at"`
	ExpiresAt string         `json:"expires_at"`
	DecidedBy string         `json:"decided_by,omitempty"`
	DecidedAt string         `json:"decided_at,omitempty"`
	Decision  string         `json:"decision_reason,omitempty"`
	Executed  string         `json:"executed_at,omitempty"`
	Changes   []dead.Change  `json:"changes,omitempty"` // of a correction
	Revealed  bool           `json:"revealed,omitzero"` // or else names and accounts are masked
	Digest    string         `json:"digest"`
	Content   jsontext.Value `json:"content,omitempty"`
}

func proposalRowOf(p operate.Proposal) proposalRow {
	row := proposalRow{
		ID: p.ID.String(), State: string(p.State), Overtaken: p.Overtaken, Act: p.Act, Target: p.Target, By: p.By, Reason: p.Reason, Evidence: p.Evidence,
		Weight: weightText(p.Act, p.Weight), At: cli.Time(p.At), ExpiresAt: cli.Time(p.ExpiresAt), DecidedBy: p.DecidedBy, DecidedAt: cli.Time(p.DecidedAt),
		Decision: p.Decision, Executed: cli.Time(p.ExecutedAt), Changes: dead.ShownChanges(p), Digest: hex.EncodeToString(p.Digest),
	}
	if content := jsontext.Value(p.Content); content.IsValid() {
		row.Content = content
	}
	return row
}

// weightText says how much an act is about, as 49.00 GBP, 3 letters.
func weightText(act string, w operate.Weight) string {
	var parts []string
	for _, currency := range slices.Sorted(maps.Keys(w.Amounts)) {
		parts = append(parts, money.Amount{Minor: w.Amounts[currency], Currency: currency}.String())
	}
	if w.Count > 0 {
		what := map[string]string{batch.ActSubmit: "row", "replay": "letter", "discard": "letter", "correct": "letter", "resolve": "operation"}[act]
		if what != "" && w.Count > 1 {
			what += "s"
		}
		parts = append(parts, strings.TrimSpace(fmt.Sprint(w.Count, " ", what)))
	}
	return strings.Join(parts, ", ")
}

func proposalTable(rows ...proposalRow) cli.Table[proposalRow] {
	return cli.Table[proposalRow]{
		Columns: []string{"id", "state", "overtaken", "act", "target", "by", "weight", "at", "expires_at", "decided_by", "decided_at", "decision_reason", "executed_at",
			"reason", "evidence", "changes", "digest", "content"},
		Cells: func(r proposalRow) []string {
			changes := make([]string, len(r.Changes))
			for i := range r.Changes {
				changes[i] = r.Changes[i].Text()
			}
			return []string{r.ID, r.State, r.Overtaken, r.Act, r.Target, r.By, r.Weight, r.At, r.ExpiresAt, r.DecidedBy, r.DecidedAt, r.Decision, r.Executed,
				r.Reason, r.Evidence, strings.Join(changes, "; "), r.Digest, string(r.Content)}
		},
		Rows: rows,
	}
}

func proposalStates() []string {
	var names []string
	for _, state := range operate.ProposalStates() {
		names = append(names, string(state))
	}
	return names
}

func (s *session) proposalsList() *cobra.Command {
	var f operate.ProposalFilter
	var states []string
	command := &cobra.Command{
		Use:   "list",
		Short: "List proposals, the newest first",
		Long: "Lists proposals, the newest first. One is overtaken when what it would do cannot be done any more: its operation has an outcome, its letters were\n" +
			"decided about otherwise, its run was cancelled. Nobody can agree to it then; it says by what, and ends at its time.",
		Example: "  paidonce proposals list --state open\n  paidonce proposals list --act resolve -o json",
		Args:    noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error {
			for _, state := range states {
				if !slices.Contains(proposalStates(), state) {
					return cli.Exit(cli.Usage, fmt.Errorf("--state %s: there are %s", state, strings.Join(proposalStates(), ", ")))
				}
				f.States = append(f.States, operate.ProposalState(state))
			}
			if f.Limit < 1 {
				return cli.Exit(cli.Usage, errors.New("--limit must be at least 1"))
			}
			return s.openDesk(ctx, func(d *desk) error {
				list, err := d.Proposals(ctx, f)
				if err != nil {
					return err
				}
				rows := []proposalRow{}
				for _, p := range list {
					rows = append(rows, proposalRowOf(p))
				}
				if s.printer().Format == cli.FormatTable { // `proposals show` prints what one is about to the byte
					for n := range rows {
						rows[n].Changes, rows[n].Digest, rows[n].Content = nil, "", nil
					}
				}
				return cli.List(s.printer(), proposalTable(rows...))
			})
		}),
	}
	flags := command.Flags()
	flags.StringSliceVar(&states, "state", nil, "only these: "+strings.Join(proposalStates(), ", "))
	flags.StringVar(&f.Act, "act", "", "only this act, as resolve or replay")
	flags.StringVar(&f.Target, "target", "", "only this key or plan")
	flags.IntVar(&f.Limit, "limit", 100, "most proposals to list")
	s.must(command.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(proposalStates(), cobra.ShellCompDirectiveNoFileComp)))
	return command
}

func (s *session) proposalsShow() *cobra.Command {
	var r *reveal
	command := &cobra.Command{
		Use:   "show ID",
		Short: "Show one proposal, with all that it would do",
		Long: "Shows one proposal, with all that it would do, to the byte. Of a correction of a dead letter it shows for every member that changes what stands\n" +
			"in the letter and what would be paid instead: amount, route and times as they are, names and accounts masked. With --reveal these are shown\n" +
			"as they are, read from the letter itself; it takes an operator or an approver and a reason, and is kept in the audit log. Look at them\n" +
			"before you agree to another beneficiary: two accounts may look alike where they are masked.",
		Example: "  paidonce proposals show 0193a1f2-7a52-7c3e-9b6e-2f6f0b0f4a11\n" +
			"  paidonce proposals show 0193a1f2-7a52-7c3e-9b6e-2f6f0b0f4a11 --reveal --reason 'compared with ticket 812'",
		Args: exactly(1, "the id of one proposal"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			id, err := parseProposal(args[0])
			if err != nil {
				return err
			}
			if r.wanted {
				return s.revealProposal(ctx, id, r)
			}
			return s.openDesk(ctx, func(d *desk) error {
				p, err := d.Proposal(ctx, id)
				if err != nil {
					return err
				}
				return cli.One(s.printer(), proposalTable(proposalRowOf(p)))
			})
		}),
	}
	r = s.revealFlags(command, "show the names and accounts that a correction changes")
	return command
}

// revealProposal shows the changes of a correction in full, after the log says so.
func (s *session) revealProposal(ctx context.Context, id uuid.UUID, r *reveal) error {
	c := &change{reason: r.reason}
	if err := c.complete(); err != nil {
		return err
	}
	return s.atDeadDesk(ctx, func(desk *desk, d *deadDesk) error {
		p, err := desk.Proposal(ctx, id)
		if err != nil {
			return err
		}
		proposed, err := d.Proposed(ctx, p)
		if err != nil {
			return err
		}
		act := proposed.Reveal()
		if _, err := desk.Do(ctx, c.request(desk.by, act)); err != nil {
			return err
		}
		row := proposalRowOf(p)
		row.Changes, row.Revealed = act.Changes, true
		return cli.One(s.printer(), proposalTable(row))
	})
}

func parseProposal(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, cli.Exit(cli.Usage, errors.New("a proposal is named by its id, as `paidonce proposals list` prints it"))
	}
	return id, nil
}

// proposalsDecide is approve or decline.
func (s *session) proposalsDecide(verb, short string) *cobra.Command {
	var c *change
	var digest string
	command := &cobra.Command{
		Use:   verb + " ID",
		Short: short,
		Long: short + ".\nNobody approves what they proposed themselves. With --digest it is refused unless the proposal is the one that was read;\n" +
			"without, what is decided upon is printed.",
		Example: "  paidonce proposals " + verb + " 0193a1f2-7a52-7c3e-9b6e-2f6f0b0f4a11 --reason 'checked with the bank'",
		Args:    exactly(1, "the id of one proposal"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			id, err := parseProposal(args[0])
			if err != nil {
				return err
			}
			if err := c.complete(); err != nil {
				return err
			}
			return s.atDesk(ctx, func(d *desk) error {
				p, err := d.Proposal(ctx, id)
				if err != nil {
					return err
				}
				read := p.Digest
				if digest != "" {
					if read, err = hex.DecodeString(digest); err != nil {
						return cli.Exit(cli.Usage, errors.New("--digest is the one that `paidonce proposals show` prints"))
					}
				}
				if c.dryRun {
					if err := d.Decidable(ctx, p, d.by, read, verb == "approve"); err != nil {
						return err
					}
					s.say("dry run: nothing is decided; as it stands %s may %s it", d.by.Name, verb)
					return cli.One(s.printer(), proposalTable(proposalRowOf(p)))
				}
				decide := d.Approve
				if verb == "decline" {
					decide = d.Decline
				}
				decided, err := decide(ctx, d.by, id, read, c.reason)
				if err != nil {
					return err
				}
				return cli.One(s.printer(), proposalTable(proposalRowOf(decided)))
			})
		}),
	}
	c = s.changeFlags(command)
	command.Flags().BoolVar(&c.dryRun, "dry-run", false, "check everything by the same code, and change nothing")
	command.Flags().StringVar(&digest, "digest", "", "the digest of the proposal as it was read")
	return command
}
