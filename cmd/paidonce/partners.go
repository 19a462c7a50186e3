package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/cli"
)

// partnerRow is a partner as configured, and what its adapter declares.
type partnerRow struct {
	Partner      string     `json:"partner"`
	Adapter      string     `json:"adapter"`
	Profile      int        `json:"profile_version"`
	BaseURL      string     `json:"base_url"`
	CredentialID string     `json:"credential_id"`
	Routes       []string   `json:"routes"`
	Timeout      string     `json:"timeout"`
	MaxInFlight  int        `json:"max_in_flight"`
	RateLimit    int        `json:"rate_limit"`
	EchoesKey    bool       `json:"echoes_key"`
	LookUps      []string   `json:"look_ups"`
	Declares     profileRow `json:"declares"`
}

type profileRow struct {
	KeyHeader            string     `json:"key_header,omitempty"`
	KeyMaxLength         int        `json:"key_max_length,omitzero"`
	KeyCharset           string     `json:"key_charset,omitempty"`
	HonoursKeys          bool       `json:"honours_keys"`
	KeyScope             string     `json:"key_scope,omitempty"`
	SerialisesDuplicates bool       `json:"serialises_duplicates"`
	KeyWindow            string     `json:"key_window"`
	MinResendDelay       string     `json:"min_resend_delay"`
	LatestArrival        string     `json:"latest_arrival"`
	Replay               string     `json:"replay"`
	InFlight             string     `json:"in_flight"`
	KeyReuse             string     `json:"key_reuse"`
	LookUp               string     `json:"look_up"`
	LookUpConsistent     bool       `json:"look_up_consistent"`
	VisibilityBound      string     `json:"visibility_bound"`
	AmountFormat         string     `json:"amount_format"`
	WebhookScheme        string     `json:"webhook_scheme,omitempty"`
	Timeout              string     `json:"timeout"`
	MaxInFlight          int        `json:"max_in_flight"`
	RateLimit            float64    `json:"rate_limit"`
	Codes                []codeRow  `json:"codes"`
	States               []stateRow `json:"states"`
}

type codeRow struct {
	Status         int    `json:"status"`
	Code           string `json:"code"`
	Means          string `json:"means"`
	StoredUnderKey bool   `json:"stored_under_key"`
	ConcernsAll    bool   `json:"concerns_the_partner"`
	OurCause       bool   `json:"our_cause"`
}

type stateRow struct {
	State   string `json:"state"`
	Verdict string `json:"verdict"`
	Settled bool   `json:"settled"`
}

func (s *session) partners() *cobra.Command {
	return &cobra.Command{
		Use:   "partners [NAME]",
		Short: "Print what each partner's adapter declares",
		Long: "Prints the partners of the configuration with the profile that their adapter declares. The promise of paidonce is as strong as\n" +
			"these profiles are true. With a name: everything of that partner, its listed codes and states too.",
		Example: "  paidonce partners\n  paidonce partners northbank\n  paidonce partners -o json",
		Args:    maximum(1, "at most one partner"),
		RunE:    s.do(func(_ context.Context, args []string) error { return s.showPartners(args) }),
	}
}

func (s *session) showPartners(names []string) error {
	c, err := s.load()
	if err != nil {
		return err
	}
	ids := slices.Sorted(maps.Keys(c.Partners))
	if len(names) == 1 {
		if c.Partners[names[0]] == nil {
			return cli.Exit(cli.NotFound, fmt.Errorf("partner %q is not configured", names[0]))
		}
		ids = names
	}
	rows := []partnerRow{}
	for _, id := range ids {
		settings := c.Partners[id]
		adapter, err := app.AdapterOf(settings.Adapter)
		if err != nil {
			return err
		}
		row := partnerRow{
			Partner: id, Adapter: settings.Adapter, Profile: adapter.Profile().Version, BaseURL: settings.BaseURL.String(),
			CredentialID: settings.CredentialID, Routes: []string{}, Timeout: settings.Timeout.String(), MaxInFlight: settings.MaxInFlight,
			RateLimit: settings.RateLimit, EchoesKey: settings.EchoesKey, LookUps: durations(settings.LookUps), Declares: profileRowOf(adapter.Profile()),
		}
		for _, route := range slices.Sorted(maps.Keys(c.Routes)) {
			if c.Routes[route].Partner == id {
				row.Routes = append(row.Routes, route)
			}
		}
		rows = append(rows, row)
	}
	if len(names) == 1 {
		return cli.One(s.printer(), onePartner(rows[0]))
	}
	return cli.List(s.printer(), cli.Table[partnerRow]{
		Columns: []string{"partner", "adapter", "profile", "routes", "honours_keys", "serialises", "key_window", "look_up", "base_url", "credential_id"},
		Cells: func(r partnerRow) []string {
			d := r.Declares
			return []string{r.Partner, r.Adapter, fmt.Sprint(r.Profile), strings.Join(r.Routes, " "), fmt.Sprint(d.HonoursKeys),
				fmt.Sprint(d.SerialisesDuplicates), d.KeyWindow, d.LookUp, r.BaseURL, r.CredentialID}
		},
		Rows: rows,
	})
}

func profileRowOf(p bankclient.Profile) profileRow {
	row := profileRow{
		KeyHeader: p.Key.Header, KeyMaxLength: p.Key.MaxLength, KeyCharset: p.Key.Charset, HonoursKeys: p.HonoursKeys, KeyScope: p.KeyScope,
		SerialisesDuplicates: p.SerialisesDuplicates, KeyWindow: p.KeyWindow.String(), MinResendDelay: p.MinResendDelay.String(),
		LatestArrival: p.LatestArrival.String(), Replay: p.Replay, InFlight: p.InFlight, KeyReuse: p.KeyReuse, LookUp: p.LookUp.String(),
		LookUpConsistent: p.LookUpConsistent, VisibilityBound: p.VisibilityBound.String(), AmountFormat: p.AmountFormat,
		WebhookScheme: p.WebhookScheme, Timeout: p.Timeout.String(), MaxInFlight: p.MaxInFlight, RateLimit: p.RateLimit,
	}
	for _, code := range p.Codes {
		row.Codes = append(row.Codes, codeRow{
			Status: code.Status, Code: code.Code, Means: code.Means.String(), StoredUnderKey: code.StoredUnderKey,
			ConcernsAll: code.Scope == bankclient.ScopePartner, OurCause: code.Cause != bankclient.CauseNone,
		})
	}
	for _, state := range p.States {
		row.States = append(row.States, stateRow{state.State, state.Verdict.String(), state.Settled})
	}
	return row
}

// onePartner shows everything of one partner, a line each.
func onePartner(r partnerRow) cli.Table[partnerRow] {
	d := r.Declares
	lines := [][2]string{
		{"partner", r.Partner}, {"adapter", r.Adapter}, {"profile_version", fmt.Sprint(r.Profile)}, {"base_url", r.BaseURL},
		{"credential_id", r.CredentialID}, {"routes", strings.Join(r.Routes, " ")}, {"timeout", r.Timeout},
		{"max_in_flight", fmt.Sprint(r.MaxInFlight)}, {"rate_limit", fmt.Sprint(r.RateLimit)}, {"echoes_key", fmt.Sprint(r.EchoesKey)}, {"look_ups", strings.Join(r.LookUps, " ")},
		{"key_header", d.KeyHeader}, {"key_max_length", fmt.Sprint(d.KeyMaxLength)}, {"key_charset", d.KeyCharset},
		{"honours_keys", fmt.Sprint(d.HonoursKeys)}, {"key_scope", d.KeyScope}, {"serialises_duplicates", fmt.Sprint(d.SerialisesDuplicates)},
		{"key_window", d.KeyWindow}, {"min_resend_delay", d.MinResendDelay}, {"latest_arrival", d.LatestArrival}, {"replay", d.Replay},
		{"in_flight", d.InFlight}, {"key_reuse", d.KeyReuse}, {"look_up", d.LookUp}, {"look_up_consistent", fmt.Sprint(d.LookUpConsistent)},
		{"visibility_bound", d.VisibilityBound}, {"amount_format", d.AmountFormat}, {"webhook_scheme", d.WebhookScheme},
	}
	for _, code := range d.Codes {
		text := code.Means
		for _, more := range []struct {
			set  bool
			text string
		}{{code.StoredUnderKey, "stored under the key"}, {code.ConcernsAll, "concerns the partner"}, {code.OurCause, "ours to cure"}} {
			if more.set {
				text += ", " + more.text
			}
		}
		lines = append(lines, [2]string{fmt.Sprintf("code %d %s", code.Status, code.Code), text})
	}
	for _, state := range d.States {
		text := state.Verdict
		if state.Settled {
			text += ", settled"
		}
		lines = append(lines, [2]string{"state " + state.State, text})
	}
	columns, cells := make([]string, len(lines)), make([]string, len(lines))
	for i, line := range lines {
		columns[i], cells[i] = line[0], line[1]
	}
	return cli.Table[partnerRow]{Columns: columns, Cells: func(partnerRow) []string { return cells }, Rows: []partnerRow{r}}
}

func durations(list []time.Duration) []string {
	var out []string
	for _, d := range list {
		out = append(out, d.String())
	}
	return out
}

func maximum(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > n {
			return fmt.Errorf("takes %s", what)
		}
		return nil
	}
}
