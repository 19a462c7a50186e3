package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

// enqueueFlags are the members of one job as flags.
type enqueueFlags struct {
	source, route string
	key           string
	members       map[string]*string // of the job
	beneficiary   map[string]*string
	metadata      map[string]string
	dryRun        bool
}

type receiptRow struct {
	Key       string `json:"key"`
	Source    string `json:"source"`
	Route     string `json:"route"`
	Subject   string `json:"subject"`
	MsgID     string `json:"msg_id"`
	Bytes     int    `json:"bytes"`
	Published bool   `json:"published"`
	Sequence  uint64 `json:"sequence,omitzero"`
	Duplicate bool   `json:"duplicate"`
}

func (s *session) enqueue() *cobra.Command {
	f := &enqueueFlags{members: map[string]*string{}, beneficiary: map[string]*string{}}
	command := &cobra.Command{
		Use:   "enqueue [-]",
		Short: "Publish one job, from flags or from standard input",
		Long: "Publishes one withdrawal job. A job without a key gets one, and the key is written to standard error before anything is\n" +
			"published: when the answer is lost, run the same command with --key and the same content; that is safe, and without\n" +
			"the key it is not. With - the job is read from standard input as JSON, where v and key may be left out.",
		Example: "  paidonce enqueue --source wallet --route gbp-fps --debtor-account cust-4471 --amount 49.00 --currency GBP \\\n" +
			"    --name 'A N Example' --iban GB33BUKB20201555555555 --reference 'Withdrawal 88104'\n" +
			"  paidonce enqueue --source wallet --route gbp-fps --dry-run - < job.json",
		Args: cobra.MatchAll(cobra.MaximumNArgs(1), func(_ *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] != "-" {
				return errors.New("takes no argument but -, for standard input")
			}
			return nil
		}),
		RunE: s.do(func(ctx context.Context, args []string) error { return s.enqueueOne(ctx, f, len(args) == 1) }),
	}
	f.declare(command)
	return command
}

func (f *enqueueFlags) declare(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&f.source, "source", "", "the upstream system that the job comes from (needed)")
	flags.StringVar(&f.route, "route", "", "the route to pay over (needed)")
	flags.StringVar(&f.key, "key", "", "operation key (default: a new one)")
	for _, m := range []struct{ flag, member, usage string }{
		{"debtor-account", "debtor_account", "whose withdrawal it is"},
		{"amount", "amount", "with exactly the digits of its currency, as 49.00"},
		{"currency", "currency", "ISO 4217, as GBP"},
		{"reference", "reference", "text for the beneficiary"},
		{"not-before", "not_before", "nothing is sent before this time, as 2026-12-24T00:00:00Z"},
		{"not-after", "not_after", "nothing is sent after this time"},
	} {
		f.members[m.member] = flags.String(m.flag, "", m.usage)
	}
	for _, m := range []struct{ flag, member, usage string }{
		{"name", "name", "name of the beneficiary"},
		{"iban", "iban", "IBAN of the beneficiary"},
		{"bic", "bic", "BIC beside an IBAN"},
		{"sort-code", "sort_code", "sort code, with --account-number"},
		{"account-number", "account_number", "account number, with --sort-code or --routing-number"},
		{"routing-number", "routing_number", "ABA routing number, with --account-number"},
		{"pix-key", "pix_key", "Pix key of the beneficiary"},
	} {
		f.beneficiary[m.member] = flags.String(m.flag, "", m.usage)
	}
	flags.StringToStringVar(&f.metadata, "metadata", nil, "name=value, repeatable; carried along, not part of what is paid")
	flags.BoolVar(&f.dryRun, "dry-run", false, "check and show, publish nothing")
}

func (s *session) enqueueOne(ctx context.Context, f *enqueueFlags, fromStdin bool) error {
	c, err := s.load()
	if err != nil {
		return err
	}
	if err := f.checkNames(c); err != nil {
		return err
	}
	payload, err := s.payload(f, fromStdin)
	if err != nil {
		return err
	}
	j, err := job.Decode(f.source, f.route, payload)
	if err != nil {
		return cli.Exit(cli.Usage, err)
	}
	row := receiptRow{
		Key: j.Key.String(), Source: f.source, Route: f.route, Subject: job.Subject(f.route, f.source),
		MsgID: job.MsgID(f.source, j.Key, payload), Bytes: len(payload),
	}
	s.say("key %s", j.Key)
	if !f.dryRun {
		if err := s.publish(ctx, c, &row, j.Key, payload); err != nil {
			return err
		}
	}
	return cli.One(s.printer(), cli.Table[receiptRow]{
		Columns: []string{"key", "source", "route", "subject", "msg_id", "bytes", "published", "sequence", "duplicate"},
		Cells: func(r receiptRow) []string {
			return []string{r.Key, r.Source, r.Route, r.Subject, r.MsgID, fmt.Sprint(r.Bytes), fmt.Sprint(r.Published), number(r.Sequence), fmt.Sprint(r.Duplicate)}
		},
		Rows: []receiptRow{row},
	})
}

func (s *session) publish(ctx context.Context, c *config.Config, row *receiptRow, key uuid.UUID, payload []byte) error {
	again := func(err error) error {
		return fmt.Errorf("%w (to try again safely: the same command with --key %s)", err, key)
	}
	s.refused = fmt.Sprintf("this user may not publish to %s: there is no such route for source %s, or the credentials are another source's", row.Subject, row.Source)
	ctx, cancel := context.WithTimeout(ctx, provisionTimeout)
	defer cancel()
	s.giveUp = cancel
	nc, err := s.connect(ctx, c, queue.RolePublisher, row.Source)
	if err != nil {
		return again(err)
	}
	defer nc.Close()
	publisher, err := queue.NewPublisher(nc, queue.PublisherOptions{Log: zerolog.Nop()})
	if err != nil {
		return again(err)
	}
	receipt, err := publisher.Publish(ctx, queue.Message{Source: row.Source, Route: row.Route, Key: key, Payload: payload})
	switch {
	case errors.Is(err, queue.ErrUnconfirmed):
		return cli.Exit(cli.TryAgain, again(err))
	case err != nil:
		return again(err)
	}
	row.Published, row.Sequence, row.Duplicate = true, receipt.Sequence, receipt.Duplicate
	return nil
}

// checkNames refuses what would only become a dead letter. Without a configuration of routes and sources it cannot.
func (f *enqueueFlags) checkNames(c *config.Config) error {
	switch {
	case f.source == "" || f.route == "":
		return cli.Exit(cli.Usage, errors.New("enqueue needs --source and --route"))
	case len(c.Routes) > 0 && c.Routes[f.route] == nil:
		return cli.Exit(cli.Usage, fmt.Errorf("route %q is not configured", f.route))
	case len(c.Sources) > 0 && c.Sources[f.source] == nil:
		return cli.Exit(cli.Usage, fmt.Errorf("source %q is not configured", f.source))
	}
	return nil
}

// payload gives the job's bytes. What standard input says is kept as it was written; only v and key are added.
func (s *session) payload(f *enqueueFlags, fromStdin bool) ([]byte, error) {
	members := map[string]jsontext.Value{}
	if fromStdin {
		raw, err := io.ReadAll(io.LimitReader(s.stdin, job.MaxBytes+1))
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		if len(raw) > job.MaxBytes {
			return nil, cli.Exit(cli.Usage, fmt.Errorf("the job is larger than %d bytes", job.MaxBytes))
		}
		if json.Unmarshal(raw, &members) != nil { // the error would quote the job
			return nil, cli.Exit(cli.Usage, errors.New("standard input is not one JSON object with distinct names"))
		}
	}
	if err := f.add(members, fromStdin); err != nil {
		return nil, err
	}
	if members["v"] == nil {
		members["v"] = jsontext.Value("1")
	}
	if members["key"] == nil {
		members["key"] = quote(job.NewKey().String())
	}
	payload, err := json.Marshal(members, json.Deterministic(true))
	if err != nil {
		return nil, cli.Exit(cli.Usage, errors.New("the job is not valid JSON"))
	}
	return payload, nil
}

// add puts the flags into the job.
func (f *enqueueFlags) add(members map[string]jsontext.Value, fromStdin bool) error {
	if !f.valid() {
		return cli.Exit(cli.Usage, errors.New("a flag is not UTF-8 text"))
	}
	flagged, beneficiary := map[string]jsontext.Value{}, map[string]jsontext.Value{}
	for member, text := range f.members {
		if *text != "" {
			flagged[member] = quote(*text)
		}
	}
	for member, text := range f.beneficiary {
		if *text != "" {
			beneficiary[member] = quote(*text)
		}
	}
	if fromStdin && len(flagged)+len(beneficiary)+len(f.metadata) > 0 {
		return cli.Exit(cli.Usage, errors.New("with - the job comes from standard input; only --source, --route, --key and --dry-run go with it"))
	}
	if len(beneficiary) > 0 {
		flagged["beneficiary"] = object(beneficiary)
	}
	if len(f.metadata) > 0 {
		values := map[string]jsontext.Value{}
		for name, text := range f.metadata {
			values[name] = quote(text)
		}
		flagged["metadata"] = object(values)
	}
	maps.Copy(members, flagged)
	if f.key == "" {
		return nil
	}
	key, err := cli.ParseKey(f.key)
	if err != nil {
		return err
	}
	if found, ok := members["key"]; ok && !strings.EqualFold(strings.Trim(string(found), `"`), key.String()) {
		return cli.Exit(cli.Usage, errors.New("--key differs from the key on standard input"))
	}
	members["key"] = quote(key.String())
	return nil
}

// valid reports whether every flag is text. What is not would be paid under another name than was meant.
func (f *enqueueFlags) valid() bool {
	for _, members := range []map[string]*string{f.members, f.beneficiary} {
		for _, text := range members {
			if !utf8.ValidString(*text) {
				return false
			}
		}
	}
	for name, text := range f.metadata {
		if !utf8.ValidString(name + text) {
			return false
		}
	}
	return true
}

func quote(text string) jsontext.Value {
	raw, err := jsontext.AppendQuote(nil, text)
	if err != nil {
		panic("flags were checked to be UTF-8: " + err.Error())
	}
	return raw
}

func object(members map[string]jsontext.Value) jsontext.Value {
	raw, err := json.Marshal(members, json.Deterministic(true))
	if err != nil {
		panic("quoted text makes an object: " + err.Error())
	}
	return raw
}

func number(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
